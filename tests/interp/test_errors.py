"""Messages may be shown anywhere: no control character is in them, and of a long value they quote 200 characters."""

import pickle

import pytest

from interp.editing.edit_files import edit_from_json
from interp.errors import InterpError, UnknownName, UsageError


@pytest.mark.parametrize("character", ["\x1b", "\0", "\r", "\x9b", "\u202e", "\u2028"])
def test_control_characters_are_written_out_in_every_part_and_in_what_python_prints(character):
    text = f"a{character}b"
    error = UsageError(asked=text, found=text, fix=text)
    written = character.encode("unicode_escape").decode()
    for shown in (error.asked, error.found, error.fix, str(error), *error.args, str(pickle.loads(pickle.dumps(error)))):
        assert character not in shown and written in shown
    assert character not in repr(UnknownName("thing", text, [text]))


@pytest.mark.parametrize(
    "value",
    ["x" * 20_000, "x y " * 5000, list(range(5000)), [[1, 2], [3, 4]] * 900, {"a": "b c" * 900}, ("a b",) * 900],
    ids=["word", "words", "list", "lists", "mapping", "tuple"],
)  # fmt: skip
def test_a_message_quotes_at_most_200_characters_of_a_value(value):
    error = UsageError(asked=f"the value {value!r}", found=f"it is {value!r}, no number", fix=f"Not {value!r}.")
    assert all(len(part) < 240 for part in (error.asked, error.found, error.fix)) and " ..." in error.found
    with pytest.raises(InterpError) as refused:
        edit_from_json({"kind": "ablate", "layer": 0, "heads": [0], "by": "zero", "dose": value})
    assert len(str(refused.value)) < 800


def test_a_message_of_usual_length_is_left_as_it_is():
    said = "Known: " + ", ".join(f"name_{i}" for i in range(200))
    assert UsageError(asked="'a' (b) [c]", found="two\n\tlines", fix=said).fix == said
