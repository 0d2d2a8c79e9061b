# The image of an executor: Python, `actors.registration` and your program. docs/how-to/find-the-driver.md
# explains every line.
#   docker build -f executor.Dockerfile -t registry.example/worker:1.4 .
FROM python:3.12-slim
# An executor needs none of the package's dependencies: the protocol uses the standard library only.
RUN ["pip", "install", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "executor-pods"]
ENV PYTHONUNBUFFERED=1
WORKDIR /app
COPY worker.py ./
# A number, so that `runAsNonRoot` can be checked without the image's user database.
USER 10001:10001
# A list: Python is process 1 and receives SIGTERM itself.
ENTRYPOINT ["python", "worker.py"]
