# The image of chat, brain and admin, and of the migration: one build, told apart by FUNCTION_SOURCE.
FROM python:3.12-slim AS build
WORKDIR /app
COPY requirements.txt ./
COPY local/__init__.py local/package.py local/
RUN python -m venv /venv \
    && python -m local.package --requirements > cloud.txt \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r cloud.txt
COPY common common
COPY functions functions
COPY local local
COPY evals evals
# Without bytecode each start would compile again what it imports, which doubles the time until the first request.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /venv/lib /app \
    && printf '#!/venv/bin/python\nimport sys\n\nfrom local.cli import main\n\nsys.exit(main())\n' > /venv/bin/memberintel \
    && chmod 755 /venv/bin/memberintel

FROM python:3.12-slim
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV FUNCTION_SOURCE=functions/chat/main.py FUNCTION_TARGET=main
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin memberintel
USER 10001
CMD ["python", "-m", "functions.serve"]
