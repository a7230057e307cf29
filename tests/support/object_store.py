"""A server of the S3 protocol, as object stores speak it, on this machine alone."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "sweeps"


@contextmanager
def start() -> Iterator[dict[str, str]]:
    """The variables by which processes find it; there is an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1"))),
    }
    client(variables).create_bucket(Bucket=BUCKET)
    try:
        yield variables
    finally:
        server.stop()


def client(variables: Mapping[str, str]) -> Any:
    """For looking at it from outside."""
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_DEFAULT_REGION"],
    )
