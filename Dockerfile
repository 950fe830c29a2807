# Corpusmill with its locked environment: every package pinned and hash-checked, kernels compiled, an ordinary user; no
# compiler, installer or test tool. `make pin-images` writes the base image's digest behind its tag.
FROM python:3.11-slim-bookworm AS packages

WORKDIR /build
COPY requirements-setup.lock requirements.lock ./
# pip installs uv by its hash, and uv the rest: pips of different base images read hashes of extras differently.
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-setup.lock
RUN uv venv -q /opt/venv \
    && uv pip sync -q --no-cache --python /opt/venv/bin/python --compile-bytecode --require-hashes requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY pipeline pipeline
RUN pip wheel -q --no-deps --no-build-isolation --wheel-dir wheels . \
    && uv pip install -q --no-cache --no-deps --python /opt/venv/bin/python --compile-bytecode wheels/*.whl


FROM python:3.11-slim-bookworm

ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 \
    AIRFLOW_HOME=/home/mill/airflow CORPUSMILL_ROOT=/data \
    NUMBA_THREADING_LAYER=workqueue NUMBA_CACHE_DIR=/home/mill/numba NUMBA_CPU_NAME=generic

WORKDIR /opt/corpusmill
RUN useradd --uid 50000 --create-home mill \
    && mkdir -p /data /texts /auth /logs /cache /home/mill/airflow /home/mill/numba \
    && chown -R mill:mill /data /auth /logs /cache /home/mill
COPY --from=packages /opt/venv /opt/venv
COPY deploy/compile_kernels.py deploy/sample_corpus.py deploy/
COPY dags/datasets/demo.yaml dags/datasets/

USER mill
# Kernels for any processor of this architecture: no container compiles one again, wherever it runs, for 4 % more CPU than
# with those of one processor. Takes minutes, so a changed DAG or configuration must not repeat it.
RUN python deploy/compile_kernels.py > /dev/null

COPY dags dags
COPY plugins plugins
COPY deploy deploy
VOLUME ["/data", "/auth", "/logs", "/cache"]
CMD ["airflow", "version"]
