"""What schemathesis has to know of this server beside its description."""

import schemathesis


@schemathesis.serializer("application/offset+octet-stream")
def bytes_of_an_upload(ctx, value):
    """The media type of tus: bytes as they are."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """A stream that is followed does not end."""
    if case.query and str(case.query.get("follow")).lower() == "true":
        case.query["follow"] = "false"
