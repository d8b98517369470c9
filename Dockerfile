FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements.lock /tmp/
RUN python -m venv /venv && /venv/bin/pip install --require-hashes --only-binary :all: -r /tmp/requirements.lock
WORKDIR /app
COPY manage.py pyproject.toml README.md LICENSE ./
COPY fred fred
COPY leases leases
COPY backends backends
COPY placements placements
COPY reconciliation reconciliation
COPY tenants_api tenants_api
COPY templates templates
RUN /venv/bin/python manage.py collectstatic --noinput && /venv/bin/python -m compileall -q /app

FROM python:3.11-slim
RUN groupadd --gid 65532 fred && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /nonexistent fred \
    && install -d -o 65532 -g 65532 /var/lib/fred /var/lib/fred/metrics
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PROMETHEUS_MULTIPROC_DIR=/var/lib/fred/metrics
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "fred.serve"]
CMD ["web"]
