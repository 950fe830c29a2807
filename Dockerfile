# Corpusmill with its locked environment: every package pinned and hash-checked, no compiler, an ordinary user.
# `make pin-images` writes the base image's digest behind its tag.
FROM python:3.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    AIRFLOW_HOME=/home/mill/airflow CORPUSMILL_ROOT=/data PYTHONPATH=/opt/corpusmill \
    NUMBA_THREADING_LAYER=workqueue NUMBA_CACHE_DIR=/home/mill/numba

WORKDIR /opt/corpusmill
COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY pipeline corpusmill
COPY corpusmill_airflow corpusmill_airflow
COPY dags dags
COPY plugins plugins
COPY deploy deploy
COPY requirements-setup.lock ./
RUN pip install --require-hashes -r requirements-setup.lock \
    && pip install --no-deps --no-build-isolation . \
    && rm -rf build corpusmill.egg-info \
    && useradd --uid 50000 --create-home mill \
    && mkdir -p /data /auth /logs /cache /home/mill/airflow /home/mill/numba \
    && chown -R mill:mill /data /auth /logs /cache /home/mill

USER mill
VOLUME ["/data", "/auth", "/logs", "/cache"]
CMD ["airflow", "version"]
