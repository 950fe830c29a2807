"""The stages of this room: tokenize writes ids, audit compares them with the tokenizer's own library's."""
