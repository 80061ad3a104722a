"""Uses the S3-compatible port through boto3. Prints `ok NAME` or `FAILED NAME` for each check."""

import hashlib
import io
import os
import sys
import traceback
import urllib.error
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

URL = sys.argv[1]


def client(region="forebay"):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
    return boto3.client("s3", endpoint_url=URL, region_name=region, config=config)


s3 = client()
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def code_of(function, **arguments):
    try:
        function(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def put(key, body=b"x", bucket="data", **more):
    return s3.put_object(Bucket=bucket, Key=key, Body=body, **more)


def read(key, bucket="data", **more):
    return s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()


@check
def buckets():
    s3.create_bucket(Bucket="data")
    s3.create_bucket(Bucket="empty", CreateBucketConfiguration={"LocationConstraint": "forebay"})
    assert {b["Name"] for b in s3.list_buckets()["Buckets"]} == {"data", "empty"}
    assert s3.get_bucket_location(Bucket="data")["LocationConstraint"] == "forebay"
    assert code_of(s3.create_bucket, Bucket="data") == "BucketAlreadyOwnedByYou"
    s3.delete_bucket(Bucket="empty")
    assert code_of(s3.head_bucket, Bucket="empty") == "404"


@check
def objects():
    body = os.urandom(300_000)
    answer = put("dir/file", body, ContentType="text/html", Metadata={"Mtime": "1.5", "name": "x"}, Tagging="a=1")
    assert answer["ETag"] == '"%s"' % hashlib.md5(body).hexdigest()
    found = s3.get_object(Bucket="data", Key="dir/file", ChecksumMode="ENABLED")
    assert found["Body"].read() == body
    assert found["ContentType"] == "text/html" and found["Metadata"] == {"mtime": "1.5", "name": "x"}
    assert any(name.startswith("Checksum") for name in found), found.keys()
    assert "ContentEncoding" not in found
    head = s3.head_object(Bucket="data", Key="dir/file")
    assert head["ContentLength"] == len(body) and head["ETag"] == answer["ETag"]
    assert read("dir/file", Range="bytes=10-19") == body[10:20]
    assert read("dir/file", Range="bytes=-5") == body[-5:]
    assert code_of(s3.get_object, Bucket="data", Key="dir/file", Range="bytes=900000-") == "InvalidRange"
    assert code_of(s3.get_object, Bucket="data", Key="none") == "NoSuchKey"
    assert code_of(s3.get_object, Bucket="none", Key="none") == "NoSuchBucket"
    put("empty", b"")
    assert read("empty") == b""
    put("folder/", b"")
    assert s3.head_object(Bucket="data", Key="folder/")["ContentLength"] == 0


@check
def names():
    for key in ["a b+c", "ü/ñ", "a&b<c>'\"", "100%", "tilde~", "x" * 1024]:
        put(key, key.encode())
        assert read(key) == key.encode(), key
    listed = {o["Key"] for o in s3.list_objects_v2(Bucket="data")["Contents"]}
    assert {"a b+c", "ü/ñ", "a&b<c>'\"", "100%"} <= listed
    assert code_of(put, key="a//b") == "InvalidArgument"


@check
def checksums():
    for algorithm in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]:
        try:
            answer = put("sum", b"hello" * 1000, ChecksumAlgorithm=algorithm)
        except Exception as error:
            if "awscrt" in str(error).lower() or "MissingDependency" in type(error).__name__:
                continue
            raise
        assert answer["Checksum" + algorithm]
        found = s3.get_object(Bucket="data", Key="sum", ChecksumMode="ENABLED")
        assert found["Checksum" + algorithm] == answer["Checksum" + algorithm]
        found["Body"].read()
    assert code_of(put, key="sum", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==") == "BadDigest"
    assert code_of(put, key="sum", ChecksumCRC32="AAAAAA==") == "BadDigest"
    attributes = s3.get_object_attributes(Bucket="data", Key="sum", ObjectAttributes=["ETag", "ObjectSize", "Checksum"])
    assert attributes["ObjectSize"] == 5000 and '"' not in attributes["ETag"]


@check
def conditions():
    put("once", b"1", IfNoneMatch="*")
    assert code_of(put, key="once", IfNoneMatch="*") == "PreconditionFailed"
    etag = s3.head_object(Bucket="data", Key="once")["ETag"]
    put("once", b"2", IfMatch=etag)
    assert code_of(put, key="once", IfMatch=etag) == "PreconditionFailed"
    assert code_of(s3.get_object, Bucket="data", Key="once", IfMatch=etag) == "PreconditionFailed"
    now = s3.head_object(Bucket="data", Key="once")["ETag"]
    assert code_of(s3.get_object, Bucket="data", Key="once", IfNoneMatch=now) == "304"


@check
def listing():
    s3.create_bucket(Bucket="list")
    keys = sorted(["%s/%03d" % (d, n) for d in "abc" for n in range(7)] + ["top%d" % n for n in range(5)])
    for key in keys:
        put(key, bucket="list")
    for size in [1, 3, 1000]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket="list", PaginationConfig={"PageSize": size})
        assert [o["Key"] for page in pages for o in page.get("Contents", [])] == keys
        pages = list(
            s3.get_paginator("list_objects").paginate(Bucket="list", Delimiter="/", PaginationConfig={"PageSize": size})
        )
        assert [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", [])] == ["a/", "b/", "c/"]
        assert [o["Key"] for page in pages for o in page.get("Contents", [])] == keys[-5:]
    after = s3.list_objects_v2(Bucket="list", StartAfter="c/003", MaxKeys=2)
    assert [o["Key"] for o in after["Contents"]] == ["c/004", "c/005"] and after["IsTruncated"]
    versions = s3.list_object_versions(Bucket="list", Prefix="top")
    assert {v["VersionId"] for v in versions["Versions"]} == {"null"}


@check
def copies():
    put("from me", b"bytes", Metadata={"a": "1"}, ContentType="text/x-a", Tagging="t=1")
    s3.copy_object(Bucket="data", Key="to", CopySource={"Bucket": "data", "Key": "from me"})
    head = s3.head_object(Bucket="data", Key="to")
    assert head["Metadata"] == {"a": "1"} and head["ContentType"] == "text/x-a"
    own = {"Bucket": "data", "Key": "to"}
    assert code_of(s3.copy_object, Bucket="data", Key="to", CopySource=own) == "InvalidRequest"
    s3.copy_object(Bucket="data", Key="to", CopySource=own, Metadata={"b": "2"}, MetadataDirective="REPLACE")
    assert s3.head_object(Bucket="data", Key="to")["Metadata"] == {"b": "2"} and read("to") == b"bytes"
    large = os.urandom(17 << 20)
    s3.upload_fileobj(io.BytesIO(large), "data", "large")
    s3.copy({"Bucket": "data", "Key": "large"}, "data", "large copy")
    assert read("large copy") == large


@check
def parts():
    body = os.urandom(20 << 20)
    config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=6 << 20, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(body), "data", "parts", Config=config, ExtraArgs={"ContentType": "text/plain"})
    head = s3.head_object(Bucket="data", Key="parts")
    assert head["ETag"].endswith('-4"') and head["ContentType"] == "text/plain"
    target = io.BytesIO()
    s3.download_fileobj("data", "parts", target, Config=config)
    assert target.getvalue() == body
    part = s3.get_object(Bucket="data", Key="parts", PartNumber=2)
    assert part["PartsCount"] == 4 and part["Body"].read() == body[6 << 20 : 12 << 20]
    upload = s3.create_multipart_upload(Bucket="data", Key="open")["UploadId"]
    s3.upload_part(Bucket="data", Key="open", UploadId=upload, PartNumber=3, Body=b"x")
    assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket="data")["Uploads"]] == [upload]
    assert [p["PartNumber"] for p in s3.list_parts(Bucket="data", Key="open", UploadId=upload)["Parts"]] == [3]
    s3.abort_multipart_upload(Bucket="data", Key="open", UploadId=upload)
    assert code_of(s3.list_parts, Bucket="data", Key="open", UploadId=upload) == "NoSuchUpload"


@check
def deletes():
    s3.create_bucket(Bucket="gone")
    keys = ["k%d" % n for n in range(50)]
    for key in keys:
        put(key, bucket="gone")
    answer = s3.delete_objects(Bucket="gone", Delete={"Objects": [{"Key": k} for k in keys + ["missing"]]})
    assert len(answer["Deleted"]) == 51 and not answer.get("Errors")
    assert s3.list_objects_v2(Bucket="gone")["KeyCount"] == 0
    s3.delete_bucket(Bucket="gone")


@check
def tagging():
    put("tagged", Tagging="a=1&b=2")
    tags = s3.get_object_tagging(Bucket="data", Key="tagged")["TagSet"]
    assert tags == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    s3.put_object_tagging(Bucket="data", Key="tagged", Tagging={"TagSet": [{"Key": "c", "Value": "3"}]})
    assert s3.get_object_tagging(Bucket="data", Key="tagged")["TagSet"] == [{"Key": "c", "Value": "3"}]
    s3.delete_object_tagging(Bucket="data", Key="tagged")
    assert s3.get_object_tagging(Bucket="data", Key="tagged")["TagSet"] == []


@check
def versions():
    s3.create_bucket(Bucket="kept")
    s3.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
    assert s3.get_bucket_versioning(Bucket="kept")["Status"] == "Enabled"
    first = put("k", b"one", bucket="kept")["VersionId"]
    second = put("k", b"two", bucket="kept")["VersionId"]
    marker = s3.delete_object(Bucket="kept", Key="k")
    assert marker["DeleteMarker"] and code_of(s3.get_object, Bucket="kept", Key="k") == "NoSuchKey"
    assert s3.get_object(Bucket="kept", Key="k", VersionId=first)["Body"].read() == b"one"
    listed = s3.list_object_versions(Bucket="kept")
    assert [v["VersionId"] for v in listed["Versions"]] == [second, first]
    assert [m["IsLatest"] for m in listed["DeleteMarkers"]] == [True]
    s3.delete_object(Bucket="kept", Key="k", VersionId=marker["VersionId"])
    assert s3.get_object(Bucket="kept", Key="k")["VersionId"] == second
    resource = boto3.resource("s3", endpoint_url=URL, region_name="forebay")
    resource.Bucket("kept").object_versions.delete()
    s3.delete_bucket(Bucket="kept")


@check
def what_is_not_there():
    assert s3.get_bucket_acl(Bucket="data")["Grants"][0]["Permission"] == "FULL_CONTROL"
    assert "Status" not in s3.get_bucket_versioning(Bucket="data")
    assert code_of(s3.get_bucket_policy, Bucket="data") == "NoSuchBucketPolicy"
    assert code_of(s3.get_bucket_cors, Bucket="data") == "NoSuchCORSConfiguration"
    assert code_of(s3.get_bucket_lifecycle_configuration, Bucket="data") == "NoSuchLifecycleConfiguration"
    assert code_of(s3.get_bucket_tagging, Bucket="data") == "NoSuchTagSet"
    assert code_of(put, key="x", ACL="public-read") == "AccessControlListNotSupported"
    assert code_of(put, key="x", ServerSideEncryption="AES256") == "NotImplemented"


def fetch(url, method="GET", data=None, headers={}):
    import ssl

    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
    request = urllib.request.Request(url, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@check
def presigned():
    for region in ["forebay", "us-east-1"]:
        signer = client(region)
        put("signed", b"secret")
        url = signer.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "signed"}, ExpiresIn=60)
        assert fetch(url) == (200, b"secret"), region
        assert fetch(url.replace("signed?", "other?"))[0] == 403
        url = signer.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "new"}, ExpiresIn=60)
        assert fetch(url, "PUT", b"new", {"content-type": ""})[0] == 200, region
        stolen = fetch(url, "PUT", b"", {"content-type": "", "x-amz-copy-source": "/data/signed"})
        assert stolen[0] == 403 and read("new") == b"new", region
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "signed"}, ExpiresIn=700000)
    assert fetch(url)[0] == 400
    assert fetch(URL + "/data/signed")[0] == 403


failed = False
for function in CHECKS:
    try:
        function()
        print("ok", function.__name__)
    except Exception:
        failed = True
        print("FAILED", function.__name__)
        traceback.print_exc(file=sys.stdout)
sys.exit(failed)
