# SPDX-License-Identifier: Apache-2.0
"""What a domain XML says of a VM, Nova's metadata in it well-formed and not."""

from __future__ import annotations

import contextlib
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.hypervisor import domain_xml, exceptions
from vmqos.hypervisor.model import NovaMetadata

UUID = "38c43823-3651-469c-b344-166d1c87d77b"


def domain(body: str = "", attributes: str = "type='kvm' id='4'", identity: str | None = None) -> str:
    identity = f"<name>instance-00000005</name><uuid>{UUID}</uuid>" if identity is None else identity
    return f"<domain {attributes}>{identity}{body}</domain>"


def test_a_running_vm_is_described() -> None:
    described = domain_xml.parse(domain("<vcpu placement='static'>4</vcpu><memory unit='KiB'>65536</memory>"))
    assert described == domain_xml.DomainDescription(
        uuid=UUID,
        name="instance-00000005",
        libvirt_id=4,
        has_cachetune=False,
        metadata=None,
        vcpus=4,
    )


@pytest.mark.parametrize(
    ("element", "vcpus"),
    [
        ("<vcpu placement='static' current='2'>8</vcpu>", 2),
        ("", 0),
        ("<vcpu>99999999999999</vcpu>", 0),
        ("<vcpu>-1</vcpu>", 0),
        ("<vcpu>999999</vcpu>", domain_xml.MOST_VCPUS),
    ],
)
def test_vcpus_that_are_plugged_in_are_counted(element: str, vcpus: int) -> None:
    assert domain_xml.parse(domain(element)).vcpus == vcpus


def test_a_vm_that_does_not_run_has_no_number() -> None:
    assert domain_xml.parse(domain(attributes="type='kvm'")).libvirt_id is None


def test_the_uuid_is_in_lower_case() -> None:
    assert domain_xml.parse(domain(identity=f"<name>a</name><uuid>{UUID.upper()}</uuid>")).uuid == UUID


@pytest.mark.parametrize(
    ("cputune", "placed"),
    [
        ("", False),
        ("<vcpupin vcpu='0' cpuset='0'/>", False),
        ("<cachetune vcpus='0-1'><cache id='0' level='3' type='both' size='3' unit='MiB'/></cachetune>", True),
        ("<cachetune vcpus='0'><monitor level='3' vcpus='0'/></cachetune>", True),
        ("<memorytune vcpus='0-1'><node id='0' bandwidth='20'/></memorytune>", True),
    ],
)
def test_a_vm_that_libvirt_placed_is_told(cputune: str, placed: bool) -> None:
    assert domain_xml.parse(domain(f"<cputune>{cputune}</cputune>")).has_cachetune is placed


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "no XML",
        "<domain",
        "<network><name>n</name><uuid>u</uuid></network>",
        domain(identity="<name>a</name>"),
        domain(identity=f"<uuid>{UUID}</uuid>"),
        domain(identity=f"<name/><uuid>{UUID}</uuid>"),
        domain(attributes="id='x'"),
    ],
)
def test_what_libvirt_would_not_write_is_an_error(xml: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription, match="the domain XML can't be read"):
        domain_xml.parse(xml)


@given(st.text())
def test_any_text_is_a_description_or_that_error(text: str) -> None:
    with contextlib.suppress(exceptions.UnreadableDescription):
        domain_xml.parse(text)


@pytest.mark.parametrize(
    ("labels", "uid"),
    [
        ("", None),
        ("<seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+108</label></seclabel>", 64055),
        ("<seclabel type='dynamic' model='apparmor'><label>libvirt-1</label></seclabel>", None),
        ("<seclabel type='none' model='dac'/>", None),
        ("<seclabel model='dac'><label>root:root</label></seclabel>", None),
        (
            "<seclabel model='dac'><label>+1:+1</label></seclabel>"
            "<seclabel model='dac'><label>+2:+2</label></seclabel>",
            None,
        ),
    ],
)
def test_the_user_is_that_of_the_dac_label(labels: str, uid: int | None) -> None:
    assert domain_xml.parse(domain(labels)).uid == uid


@pytest.mark.parametrize("number", ["9" * 5000, "\u0661", "1_0", " 4", "4 "])
def test_a_number_that_libvirt_does_not_write_is_none(number: str) -> None:
    with pytest.raises(exceptions.UnreadableDescription):
        domain_xml.parse(domain(attributes=f"id='{number}'"))


NAMESPACE = "http://openstack.org/xmlns/libvirt/nova/1.1"

# As Nova 34.0.0 wrote it and libvirt 9.0 gave it back.
NOVA_34 = """
<metadata>
  <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
    <nova:package version="34.0.0"/>
    <nova:name>gold</nova:name>
    <nova:creationTime>2026-11-21 10:22:17</nova:creationTime>
    <nova:flavor name="w2" id="ed58294c-fa88-410f-ae13-d06d0a22d458">
      <nova:memory>64</nova:memory>
      <nova:disk>1</nova:disk>
      <nova:swap>0</nova:swap>
      <nova:ephemeral>0</nova:ephemeral>
      <nova:vcpus>2</nova:vcpus>
      <nova:extraSpecs>
        <nova:extraSpec name="hw:cache_ways">2</nova:extraSpec>
        <nova:extraSpec name="resources:CUSTOM_CACHE_WAY">2</nova:extraSpec>
      </nova:extraSpecs>
    </nova:flavor>
    <nova:image uuid="76390667-49d9-41c0-a47e-2c59f3e2a519">
      <nova:containerFormat>bare</nova:containerFormat>
      <nova:properties/>
    </nova:image>
    <nova:owner>
      <nova:user uuid="5c7df48002cf4f0b9ff379fab04675e8">admin</nova:user>
      <nova:project uuid="6e33a463cfb740e48ced88dc1df76034">admin</nova:project>
    </nova:owner>
    <nova:root type="image" uuid="76390667-49d9-41c0-a47e-2c59f3e2a519"/>
    <nova:ports/>
  </nova:instance>
</metadata>
"""


def read(xml: str) -> tuple[NovaMetadata | None, str]:
    return domain_xml.read_nova(ElementTree.fromstring(xml))


def instance(body: str, namespace: str = NAMESPACE) -> str:
    return f'<metadata><nova:instance xmlns:nova="{namespace}">{body}</nova:instance></metadata>'


def specs(body: str) -> str:
    return instance(f'<nova:flavor name="w2"><nova:extraSpecs>{body}</nova:extraSpecs></nova:flavor>')


def test_what_nova_writes_is_read() -> None:
    metadata, problem = read(NOVA_34)
    assert problem == ""
    assert metadata == NovaMetadata(
        instance_name="gold",
        flavor="w2",
        project="6e33a463cfb740e48ced88dc1df76034",
        extra_specs={"hw:cache_ways": "2", "resources:CUSTOM_CACHE_WAY": "2"},
    )


def test_it_comes_through_the_domain_xml() -> None:
    xml = f"<domain><name>a</name><uuid>u</uuid>{NOVA_34}</domain>"
    described = domain_xml.parse(xml)
    assert described.metadata == read(NOVA_34)[0]
    assert described.metadata_error == ""


def test_the_prefix_does_not_matter() -> None:
    xml = f'<metadata><instance xmlns="{NAMESPACE}"><flavor name="w2"/></instance></metadata>'
    assert read(xml) == (NovaMetadata("", "w2", "", None), "")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_other_minor_versions_are_read(version: str) -> None:
    metadata, _ = read(NOVA_34.replace("nova/1.1", f"nova/{version}"))
    assert metadata is not None
    assert metadata.extra_specs is not None
    assert metadata.extra_specs["hw:cache_ways"] == "2"


def test_before_2025_2_there_are_no_extra_specs() -> None:
    metadata, problem = read(instance('<nova:name>a</nova:name><nova:flavor name="w2"/>'))
    assert metadata == NovaMetadata("a", "w2", "", None)
    assert problem == ""


def test_a_flavor_may_have_no_extra_specs_at_all() -> None:
    metadata, problem = read(specs(""))
    assert metadata is not None
    assert metadata.extra_specs == {}
    assert problem == ""


def test_an_empty_value_is_kept_for_the_grammar_to_judge() -> None:
    metadata, problem = read(specs('<nova:extraSpec name="hw:cache_ways"/>'))
    assert metadata is not None
    assert metadata.extra_specs == {"hw:cache_ways": ""}
    assert problem == ""


@pytest.mark.parametrize(
    "xml",
    [
        "<metadata/>",
        "<metadata>just words</metadata>",
        "<metadata><!-- nova --><?nova x?></metadata>",
        "<metadata><instance><flavor name='w2'/></instance></metadata>",
        "<metadata><x:instance xmlns:x='http://openstack.org/xmlns/libvirt/nova/2.0'/></metadata>",
        "<metadata><x:instance xmlns:x='urn:other'/></metadata>",
        "<metadata><x:other xmlns:x='http://openstack.org/xmlns/libvirt/nova/1.1'/></metadata>",
    ],
)
def test_a_vm_that_nova_did_not_make_has_none(xml: str) -> None:
    assert read(xml) == (None, "")


def test_a_domain_without_metadata_has_none() -> None:
    assert domain_xml.read_nova(None) == (None, "")


# What is wrong, what is said of it, and which extra specs can still be read.
BAD: list[tuple[str, str, dict[str, str] | None]] = [
    (instance(""), "no flavor", None),
    (instance("<nova:flavor/>"), "the flavor has no name", None),
    (instance('<nova:flavor name="a"/><nova:flavor name="b"/>'), "flavor is there 2 times", None),
    (specs("<nova:extraSpec>2</nova:extraSpec>"), "value '2' has no name", {}),
    (specs('<nova:extraSpec name="">2</nova:extraSpec>'), "value '2' has no name", {}),
    (specs("hw:cache_ways=2"), "the text 'hw:cache_ways=2'", {}),
    (specs("<nova:cacheWays>2</nova:cacheWays>"), "cacheWays", {}),
    (specs('<extraSpec name="hw:cache_ways">2</extraSpec>'), "the element 'extraSpec'", {}),
    (specs('<nova:extraSpec name="a"><nova:b/></nova:extraSpec>'), "'a' holds elements", {}),
    (
        specs(
            '<nova:extraSpec name="a">2</nova:extraSpec><nova:extraSpec name="a">3</nova:extraSpec>'
            '<nova:extraSpec name="b">1</nova:extraSpec>'
        ),
        "'a' is there with different values",
        {"b": "1"},
    ),
    (
        instance('<nova:flavor name="a"><nova:extraSpecs/><nova:extraSpecs/></nova:flavor>'),
        "extraSpecs is there 2 times",
        {},
    ),
]


@pytest.mark.parametrize(("xml", "said", "extra_specs"), BAD)
def test_what_is_wrong_is_said_and_the_rest_is_read(xml: str, said: str, extra_specs: dict[str, str] | None) -> None:
    metadata, problem = read(xml)
    assert said in problem
    assert metadata is not None
    assert metadata.extra_specs == extra_specs


def test_the_same_extra_spec_twice_with_the_same_value_is_fine() -> None:
    metadata, problem = read(specs('<nova:extraSpec name="a">2</nova:extraSpec>' * 2))
    assert metadata is not None
    assert metadata.extra_specs == {"a": "2"}
    assert problem == ""


def test_a_name_that_is_too_long_for_nova_is_cut_and_said_to_be() -> None:
    long = "x" * 300_000
    flavor = f'<nova:flavor name="{long}"/>'
    owner = f'<nova:owner><nova:project uuid="{long}"/></nova:owner>'
    nova, problem = read(instance(f"<nova:name>{long}</nova:name>{flavor}{owner}"))
    assert nova is not None
    assert {len(nova.instance_name), len(nova.flavor), len(nova.project)} == {255}
    assert problem.count("longer than 255 characters") == 3


def test_an_extra_spec_that_is_too_long_for_nova_is_left_out_and_said_to_be() -> None:
    long = "x" * 256
    body = f'<nova:extraSpec name="{long}">2</nova:extraSpec><nova:extraSpec name="a">{long}</nova:extraSpec>'
    nova, problem = read(specs(f'{body}<nova:extraSpec name="b">2</nova:extraSpec>'))
    assert nova is not None and nova.extra_specs == {"b": "2"}
    assert problem.count("longer than 255 characters") == 2


def test_of_many_problems_some_are_told() -> None:
    nova, problem = read(specs("<nova:other/>" * 50_000))
    assert nova is not None and len(problem) < 2000
    assert problem.endswith("; and 49990 more")


def test_two_instances_are_beyond_use() -> None:
    body = f'<nova:instance xmlns:nova="{NAMESPACE}"/>'
    assert read(f"<metadata>{body}{body}</metadata>") == (None, "Nova's metadata are there 2 times")


NAMES = st.sampled_from(
    [f"{{{NAMESPACE}}}{name}" for name in ("instance", "flavor", "extraSpecs", "extraSpec", "owner", "project", "name")]
    + ["instance", "{urn:x}y"]
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["name", "uuid", "id"]), st.text(max_size=5), max_size=2)


def elements(children: st.SearchStrategy[list[ElementTree.Element]]) -> st.SearchStrategy[ElementTree.Element]:
    def build(
        tag: str, attributes: dict[str, str], text: str | None, below: list[ElementTree.Element]
    ) -> ElementTree.Element:
        element = ElementTree.Element(tag, attributes)
        element.text = text
        element.extend(below)
        return element

    return st.builds(build, NAMES, ATTRIBUTES, st.none() | st.text(max_size=5), children)


TREES = st.recursive(elements(st.just([])), lambda inner: elements(st.lists(inner, max_size=4)), max_leaves=20)


@given(st.lists(TREES, max_size=3))
def test_whatever_is_there_nothing_is_raised(found: list[ElementTree.Element]) -> None:
    metadata = ElementTree.Element("metadata")
    metadata.extend(found)
    nova, problem = domain_xml.read_nova(metadata)
    assert nova is not None or problem or not any(child.tag == f"{{{NAMESPACE}}}instance" for child in found)
