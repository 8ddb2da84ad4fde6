"""Small XML documents, written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import xml_documents

# What XML 1.0 can say.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="￾￿") | st.sampled_from("\t\n\r"))


def test_a_document_is_written_with_its_namespace():
    data = xml_documents.build("A", [("B", 1), None, ("C", [("D", True), ("E", "")])], namespace="http://x/")
    assert data == (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<A xmlns="http://x/"><B>1</B><C><D>true</D><E></E></C></A>'
    )


@given(TEXTS)
def test_any_text_comes_back_as_it_was(text):
    assert xml_documents.parse(xml_documents.build("A", [("B", text)])).value("B") == text


@given(st.text())
def test_any_text_at_all_can_be_written(text):
    xml_documents.build("A", [("B", text)])


def test_what_xml_cannot_say_is_a_reference():
    assert xml_documents.escape("a\x01\r<&") == "a&#x1;&#xd;&lt;&amp;"


def test_names_are_read_without_namespaces():
    root = xml_documents.parse(b'<x:A xmlns:x="u"><x:B>1</x:B><B>2</B></x:A>')
    assert (root.name, [child.text for child in root.all("B")], root.value("C")) == ("A", ["1", "2"], None)


@pytest.mark.parametrize("piece", ["\n", "&lt;", "x\r\n", "<!-- -->\n"])
def test_a_text_of_very_many_pieces_is_read_in_a_moment(piece):
    # Not by the clock: with each added to a text of its own, this would take many minutes.
    text = xml_documents.parse(f"<A>{piece * 500_000}</A>".encode()).text
    assert len(text) == 500_000 * (2 if piece.startswith("x") else 1)


def test_a_text_between_elements_is_one():
    root = xml_documents.parse(b"<A>1<B>2<!-- -->3</B>4<B/>5</A>")
    assert (root.text, [child.text for child in root.children]) == ("145", ["23", ""])


def test_what_was_read_can_be_written_again():
    root = xml_documents.parse(b"<A>\n  <B>1</B>\n  <C><D>x</D></C></A>")
    assert xml_documents.build("A", xml_documents.to_children(root)).endswith(b"<A><B>1</B><C><D>x</D></C></A>")


BOMB = b'<!DOCTYPE a [<!ENTITY b "xxxxxxxxxx"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;</a>'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"<A>",
        b"<A/><B/>",
        b"\xff<A/>",
        BOMB,
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
        "<?xml version='1.0' encoding='utf-16'?><!DOCTYPE a><a/>".encode("utf-16"),
        b"<a>&undefined;</a>",
        b"<a>" * 17 + b"</a>" * 17,
        b"<a>" + b"<b/>" * xml_documents.MAX_ELEMENTS + b"</a>",
    ],
    ids=["nothing", "text", "open", "two", "latin", "bomb", "outside", "utf-16", "entity", "deep", "many"],
)
def test_what_is_hostile_or_no_xml_is_refused(data):
    with pytest.raises(xml_documents.MalformedError):
        xml_documents.parse(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    try:
        xml_documents.parse(b"<a>" + data + b"</a>")
    except xml_documents.MalformedError:
        return


def test_a_list_has_an_element_for_each():
    built = xml_documents.build("A", [xml_documents.listed("L", [[("K", "1")], [("K", "2")]])])
    assert b"<L><member><K>1</K></member><member><K>2</K></member></L>" in built
