"""The web form: a flat list of typed fields, and the dataset configuration that they represent.

    fields (one line of the form each)  --config_from_form-->  DatasetConfig  --form_from_config-->  fields

The orchestrator's form knows no nesting, so every configuration key has one field here. The fields are made from the
configuration's own models (types, limits, choices, defaults) and from the comments of `example.yaml` (help), so a key
that is added there appears in the form, too. `corpusmill.config` checks what a field's schema does not, with the same
messages as on the command line.

Invariant: ``config_from_form(form_from_config(config), reserved=config) == config`` for every configuration without its
`dag` section, which changes no byte. Keys that are reserved for the operator's file (fields.py) have no field: a form's
configuration has them from the file that the form shows.

    fields.py   the models -> FIELDS          help.py   example.yaml -> help          values.py   there and back
"""

from corpusmill.form.fields import FIELDS, FormField
from corpusmill.form.sizes import size_text
from corpusmill.form.values import changed_keys, config_from_form, form_from_config, refuse_unknown

__all__ = ["FIELDS", "FormField", "changed_keys", "config_from_form", "form_from_config", "refuse_unknown", "size_text"]
