"""The endpoint, held to botocore's rules for every region and to its order of overrides."""

import pytest

from vmnest import errors
from vmnest.aws import codec, endpoint

SERVICE = "lambda-microvms"


@pytest.fixture
def environ(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[profile common]\nendpoint_url = http://common.example/\n"
        "[profile own]\nendpoint_url = http://common.example\nservices = mine\n"
        "[profile ignoring]\nendpoint_url = http://common.example\nignore_configured_endpoint_urls = true\n"
        "[profile fips]\nuse_fips_endpoint = true\n"
        "[services mine]\nlambda_microvms =\n  endpoint_url = http://own.example/base/\n"
    )
    return {"HOME": str(tmp_path)}


def all_regions() -> list[str]:
    import botocore.loaders

    partitions = botocore.loaders.Loader().load_data("partitions")["partitions"]
    return [name for partition in partitions for name in partition["regions"] if "-global" not in name]


@pytest.mark.parametrize("fips", [False, True])
@pytest.mark.parametrize("dual", [False, True])
def test_the_host_is_the_one_of_botocore_s_rules(fips, dual):
    from botocore.endpoint_provider import EndpointProvider
    from botocore.exceptions import EndpointProviderError
    from botocore.loaders import Loader

    loader = Loader()
    provider = EndpointProvider(
        loader.load_service_model(SERVICE, "endpoint-rule-set-1"), loader.load_data("partitions")
    )
    switches = {"AWS_USE_FIPS_ENDPOINT": str(fips).lower(), "AWS_USE_DUALSTACK_ENDPOINT": str(dual).lower()}
    compared = 0
    for region in all_regions():
        try:
            judge = provider.resolve_endpoint(Region=region, UseFIPS=fips, UseDualStack=dual).url
        except EndpointProviderError:
            continue  # the partition has no such hosts
        assert endpoint.resolve(SERVICE, region=region, environ={"HOME": "/nonexistent", **switches}) == judge
        compared += 1
    assert compared > 25


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "https://lambda.us-east-1.amazonaws.com"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1/"}, "http://127.0.0.1:1"),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": "http://b"}, "http://b"),
        ({"AWS_ENDPOINT_URL_LAMBDA": "http://b"}, "https://lambda.us-east-1.amazonaws.com"),
        ({"AWS_ENDPOINT_URL_LAMBDA_MICROVMS": ""}, "https://lambda.us-east-1.amazonaws.com"),
        ({"AWS_PROFILE": "common"}, "http://common.example"),
        ({"AWS_PROFILE": "own"}, "http://own.example/base"),
        ({"AWS_PROFILE": "own", "AWS_ENDPOINT_URL": "http://a"}, "http://a"),
        ({"AWS_PROFILE": "ignoring"}, "https://lambda.us-east-1.amazonaws.com"),
        ({"AWS_PROFILE": "ignoring", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false"}, "http://common.example"),
        (
            {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "TRUE", "AWS_ENDPOINT_URL": "http://a"},
            "https://lambda.us-east-1.amazonaws.com",
        ),
        ({"AWS_PROFILE": "fips"}, "https://lambda-fips.us-east-1.amazonaws.com"),
    ],
)
def test_overrides_count_in_botocore_s_order(environ, variables, expected):
    assert endpoint.resolve(SERVICE, region="us-east-1", environ={**environ, **variables}) == expected


def test_a_profile_can_be_named(environ):
    assert endpoint.resolve(SERVICE, region="us-east-1", environ=environ, profile="own") == "http://own.example/base"


def test_each_service_has_its_own_variable():
    environ = {"HOME": "/nonexistent", "AWS_ENDPOINT_URL_LAMBDA_CORE": "http://core"}
    assert endpoint.resolve("lambda-core", region="us-east-1", environ=environ) == "http://core"
    assert endpoint.resolve(SERVICE, region="us-east-1", environ=environ) != "http://core"


NO_URLS = (
    *("127.0.0.1:80", "ftp://a", "http://", "http://a b", "http://a?b", "http://user:hunter2@a", "http://a\n"),
    *("http://a:0", "http://a:65536", "http://a:99999999", "http://a:", "http://a:b", "http://\u00e4", "http://[::1"),
)


@pytest.mark.parametrize("url", NO_URLS)
def test_an_override_that_is_no_url_names_its_source_and_not_itself(url):
    with pytest.raises(errors.SettingError, match="AWS_ENDPOINT_URL ") as caught:
        endpoint.resolve(SERVICE, region="us-east-1", environ={"HOME": "/nonexistent", "AWS_ENDPOINT_URL": url})
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("service", sorted(codec.CLASSIC))
def test_a_classic_service_has_the_variable_that_botocore_reads(service):
    from botocore.loaders import Loader

    name = Loader().load_service_model(service, "service-2")["metadata"]["serviceId"].replace(" ", "_").upper()
    environ = {"HOME": "/nonexistent", f"AWS_ENDPOINT_URL_{name}": "http://own/", "AWS_ENDPOINT_URL": "http://common"}
    assert endpoint.resolve(service, region="us-east-1", environ=environ) == "http://own"
    del environ[f"AWS_ENDPOINT_URL_{name}"]
    assert endpoint.resolve(service, region="us-east-1", environ=environ) == "http://common"


@pytest.mark.parametrize("service", sorted(codec.CLASSIC))
def test_a_classic_service_without_an_override_goes_by_its_own_rules(service):
    assert endpoint.resolve(service, region="us-east-1", environ={"HOME": "/nonexistent"}) is None


def test_the_profile_names_an_endpoint_for_logs_as_botocore_spells_it(tmp_path):
    (tmp_path / "config").write_text(
        "[default]\nservices = mine\n[services mine]\ncloudwatch_logs =\n  endpoint_url = http://logs\n"
    )
    environ = {"HOME": "/nonexistent", "AWS_CONFIG_FILE": str(tmp_path / "config")}
    assert endpoint.resolve("logs", region="us-east-1", environ=environ) == "http://logs"
    assert endpoint.resolve("cloudwatch", region="us-east-1", environ=environ) is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (False, False)),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, (True, False)),
        ({"AWS_USE_DUALSTACK_ENDPOINT": "TRUE", "AWS_USE_FIPS_ENDPOINT": "false"}, (False, True)),
        ({"AWS_PROFILE": "fips"}, (True, False)),
    ],
)
def test_variants_are_chosen_by_variables_and_profile(environ, variables, expected):
    found = endpoint.variant(environ={**environ, **variables})
    assert (found.is_fips, found.is_dualstack) == expected


def test_where_an_override_stands_is_told(environ):
    service = "service-quotas"
    variables = {**environ, "AWS_ENDPOINT_URL_SERVICE_QUOTAS": "http://own/", "AWS_ENDPOINT_URL": "http://common"}
    assert endpoint.find_override(service, environ=variables) == ("http://own", "AWS_ENDPOINT_URL_SERVICE_QUOTAS")
    assert endpoint.find_override("iam", environ=variables) == ("http://common", "AWS_ENDPOINT_URL")
    assert endpoint.find_override("iam", environ={"HOME": "/nonexistent"}) is None
    ignoring = {**variables, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    assert endpoint.find_override(service, environ=ignoring) is None
