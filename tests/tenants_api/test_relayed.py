"""What tenants see of a backend's words."""

import pytest

from tenants_api.relayed import relayed


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        pytest.param("bad\rmanifest\x1b[31m: field\nx\ty", "badmanifest[31m: field x y", id="controls"),
        pytest.param("é" * 1000, "é" * 256 + "…", id="cut between characters"),
        pytest.param("x" + "é" * 1000, "x" + "é" * 255 + "…", id="never cut inside one"),
        pytest.param("x" * 512, "x" * 512, id="as much as fits"),
        pytest.param("\x00\x01\x02", "refused", id="nothing left"),
        pytest.param("", "refused", id="nothing said"),
        pytest.param("a\u202eb\u200bc\ufeff", "abc", id="invisible marks"),
        pytest.param('service "web": bad port', 'service "web": bad port', id="as it is"),
    ],
)
def test_ta78_words_are_relayed_in_one_harmless_line(words, seen):
    assert relayed(words, otherwise="refused") == seen
