"""What the service demands of an image."""

import pytest

from tests.support.image_stage import BASE, INTERNET, ROLE, SETTINGS
from vmnest.local import faults, image_rules

CONNECTOR = INTERNET.removesuffix("INTERNET_EGRESS")
RUNTIME_HOOKS = ["run", "resume", "suspend", "terminate"]


def parse(*, roles=(ROLE,), connectors=None, **changes):
    return image_rules.parse_settings(
        {**SETTINGS, **changes}, role_exists=lambda arn: arn in roles, connector_state=(connectors or {}).get
    )


def refusal(**changes):
    with pytest.raises(faults.Fault) as caught:
        parse(**changes)
    assert (caught.value.status, caught.value.error_type) == (400, "ValidationException")
    return caught.value.message


class TestDefaults:
    def test_they_are_filled_in(self):
        assert parse() == {
            **SETTINGS,
            "baseImageVersion": "1.0",
            "resources": [{"minimumMemoryInMiB": 2048}],
            "egressNetworkConnectors": [INTERNET],
        }

    def test_what_was_given_is_kept(self):
        given = {
            "description": "",
            "logging": {"disabled": {}},
            "cpuConfigurations": [{"architecture": "ARM_64"}],
            "additionalOsCapabilities": ["ALL"],
            "hooks": {"port": 9000, "microvmImageHooks": {"ready": "ENABLED"}},
            "environmentVariables": {"A": "1"},
            "kmsKeyIdentifier": "alias/x",
            "resources": [{"minimumMemoryInMiB": 512}],
        }
        found = parse(**given, name="demo", tags={"a": "b"}, clientToken="t")
        assert {name: found[name] for name in given} == given
        assert {"name", "tags", "clientToken"}.isdisjoint(found)

    @pytest.mark.parametrize("empty", [{"resources": []}, {"egressNetworkConnectors": []}, {"description": None}])
    def test_empty_is_the_default(self, empty):
        assert parse(**empty) == parse()

    @pytest.mark.parametrize(("given", "kept"), [("0", "0.0"), ("0.0", "0.0"), ("1", "1.0"), ("1.0", "1.0")])
    def test_a_base_version_is_written_out(self, given, kept):
        assert parse(baseImageVersion=given)["baseImageVersion"] == kept


class TestRefusals:
    @pytest.mark.parametrize(
        "uri",
        [
            *(
                "code.zip",
                "s3://",
                "s3://bucket",
                "s3://bucket/",
                "s3://b/k",
                "S3://bucket/key",
                "s3:///key",
                "s3://Bu/k",
            ),
            *("https://bucket.s3.amazonaws.com/key", "000000000000.dkr.ecr.us-east-1.amazonaws.com/x:1"),
        ],
    )
    def test_an_artifact_is_in_s3(self, uri):
        assert refusal(codeArtifact={"uri": uri}) == (
            "CodeArtifact URI must be a valid S3 URI in the format: s3://<bucket>/<key>"
        )

    @pytest.mark.parametrize(("key"), ["a", "a/b.zip", "x//y", "ü?"])
    def test_a_key_may_be_anything(self, key):
        assert image_rules.parse_artifact({"uri": f"s3://my-bucket/{key}"}) == ("my-bucket", key)

    @pytest.mark.parametrize("version", ["999", "2.0", "1.1", "latest"])
    def test_a_base_version_must_be_there(self, version):
        assert refusal(baseImageVersion=version) == (
            f"No managed MicroVM Image with arn {BASE} and version {version} is available"
        )

    def test_a_base_must_be_there(self):
        assert refusal(baseImageArn=BASE + "x") == f"No managed MicroVM Image with arn {BASE}x is available"
        assert refusal(baseImageArn=BASE + "x", baseImageVersion="1") == (
            f"No managed MicroVM Image with arn {BASE}x and version 1 is available"
        )

    @pytest.mark.parametrize("size", [0, -1, 511, 3000, 16384])
    def test_memory_has_five_sizes(self, size):
        assert refusal(resources=[{"minimumMemoryInMiB": size}]) == (
            f"The requested memory size of {size} MiB is not supported by base MicroVM image {BASE}. "
            "Supported memory sizes in MiB are: [512, 1024, 2048, 4096, 8192]."
        )

    @pytest.mark.parametrize("size", [512, 1024, 2048, 4096, 8192])
    def test_each_of_them_is_taken(self, size):
        assert image_rules.memory_mib(parse(resources=[{"minimumMemoryInMiB": size}])) == size

    def test_the_processor_is_arm(self):
        assert "architecture X86_64 is not supported by base MicroVM image" in refusal(
            cpuConfigurations=[{"architecture": "ARM_64"}, {"architecture": "X86_64"}]
        )

    def test_the_region_is_not_for_an_image_to_set(self):
        assert refusal(environmentVariables={"A": "1", "AWS_REGION": "x"}) == (
            "Environment variable key 'AWS_REGION' is reserved"
        )

    @pytest.mark.parametrize("hook", RUNTIME_HOOKS)
    @pytest.mark.parametrize("image_hooks", [{}, {"microvmImageHooks": {"ready": "DISABLED", "validate": "ENABLED"}}])
    def test_a_runtime_hook_needs_the_ready_hook(self, hook, image_hooks):
        message = refusal(hooks={"port": 9000, "microvmHooks": {hook: "ENABLED"}, **image_hooks})
        assert message.startswith(
            "The ready (/ready) MicroVM image hook must be enabled when any MicroVM lifecycle hook "
            "(run, resume, suspend, or terminate) is enabled."
        )

    @pytest.mark.parametrize("hook", ["ready", "validate"])
    def test_a_hook_needs_a_port(self, hook):
        assert "port" in refusal(hooks={"microvmImageHooks": {hook: "ENABLED"}})
        assert parse(hooks={"microvmImageHooks": {hook: "DISABLED"}})
        assert parse(hooks={"port": 80, "microvmImageHooks": {hook: "ENABLED"}})

    @pytest.mark.parametrize(
        ("arn", "message"),
        [
            ("INTERNET_EGRESS", "Malformed network connector ARN: INTERNET_EGRESS"),
            (CONNECTOR + "NO_EGRESS", f"Unrecognized managed network connector ARN: {CONNECTOR}NO_EGRESS"),
        ],
    )
    def test_a_connector_is_one_that_there_is(self, arn, message):
        assert refusal(egressNetworkConnectors=[arn]) == message

    def test_a_connector_of_the_accounts_own_must_be_active(self):
        arn = "arn:aws:lambda:us-east-1:000000000000:network-connector:nc-1"
        assert parse(egressNetworkConnectors=[arn], connectors={arn: "ACTIVE"})["egressNetworkConnectors"] == [arn]
        for known in ({arn: "PENDING"}, {}):
            with pytest.raises(faults.Fault):
                parse(egressNetworkConnectors=[arn], connectors=known)

    @pytest.mark.parametrize(
        ("arn", "roles"),
        [
            (ROLE, ()),
            (ROLE.replace("000000000000", "111122223333"), (ROLE, ROLE.replace("000000000000", "111122223333"))),
            ("arn:aws:iam::000000000000:role/path/other", (ROLE,)),
        ],
        ids=["unknown", "foreign", "other"],
    )
    def test_the_build_role_is_one_of_this_account(self, arn, roles):
        assert refusal(buildRoleArn=arn, roles=roles) == f"The role {arn} cannot be assumed by Lambda."

    def test_the_first_reason_is_told(self):
        assert "S3 URI" in refusal(codeArtifact={"uri": "x"}, baseImageVersion="9", buildRoleArn=ROLE + "x")


class TestHooks:
    def test_only_what_is_enabled_is_on(self):
        settings = {
            "hooks": {
                "port": 9000,
                "microvmImageHooks": {"ready": "ENABLED", "validate": "DISABLED"},
                "microvmHooks": {"run": "ENABLED", "resume": "DISABLED"},
            }
        }
        names = [*image_rules.RUNTIME_HOOKS, *image_rules.IMAGE_HOOKS]
        assert [hook for hook in names if image_rules.has_hook(settings, hook)] == ["run", "ready"]
        assert not image_rules.has_hook({}, "run")
