# The image of a driver: Python, this package and your program. docs/how-to/find-the-driver.md explains every line.
#   docker build -f driver.Dockerfile -t registry.example/driver:1.4 .
FROM python:3.12-slim AS build
# All dependencies have wheels: nothing is compiled, here or later.
RUN ["python", "-m", "venv", "/venv"]
RUN ["/venv/bin/pip", "install", "--no-cache-dir", "--only-binary=:all:", "executor-pods[cli,metrics,page]"]

FROM python:3.12-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:/usr/bin:/bin PYTHONUNBUFFERED=1
WORKDIR /app
COPY driver.py ./
# A number, so that `runAsNonRoot` can be checked without the image's user database.
USER 10001:10001
# A list: Python is process 1 and receives SIGTERM itself.
ENTRYPOINT ["python", "driver.py"]
