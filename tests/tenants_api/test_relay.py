"""What a tenant sees of a backend's text."""

import pytest

from tenants_api.relay import relayed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bad\rmanifest\x1b[31m: field\nx\ty", "badmanifest[31m: field x y"),
        ("é" * 1000, "é" * 256 + "…"),
        ("é" * 256, "é" * 256),
        ("x" + "é" * 256, "x" + "é" * 255 + "…"),
        ("\x00\x01\x02", "fall-back"),
        ("", "fall-back"),
        ("a\u202eb\u200bc\u2066d\ufeffe", "abcde"),
        ('service "web": bad port', 'service "web": bad port'),
        ("\ud800x", "x"),
        ("one\u2028two\u2029three\x85", "one two three"),
    ],
)
def test_ta78_a_backends_text_is_cleaned_and_cut(text, shown):
    assert relayed(text, otherwise="fall-back") == shown
