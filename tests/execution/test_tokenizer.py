"""Text in and out: the same ids as transformers gives, without importing it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lab.errors import ModelError
from lab.execution.tokenizer import ChatTokenizer, load_tokenizer, read_eos_ids

CONVERSATIONS = [
    "What is the capital of France?",
    "  spaces, tabs\tand\nlines  ",
    "Ünïcödé, 漢字, emoji 🙂, <|im_end|> inside",
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "Three"},
    ],
]


@pytest.fixture(scope="module")
def theirs(real_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(real_folder)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_chat_ids_are_those_of_transformers(real, theirs, conversation):
    messages = [{"role": "user", "content": conversation}] if isinstance(conversation, str) else conversation
    wanted = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert real.tokenizer.encode_chat(conversation) == list(wanted)


@pytest.mark.parametrize("text", ["", "plain text", "Ünïcödé 漢字 🙂", "a\n\n  b"])
def test_text_ids_are_those_of_transformers_and_come_back(real, theirs, text):
    ids = real.tokenizer.encode(text)
    assert ids == theirs(text)["input_ids"]
    assert real.tokenizer.decode(ids) == text


def test_transformers_is_not_imported(real_folder):
    code = (
        "import sys; from lab.execution.model import load_model; m = load_model(sys.argv[1]);"
        "m.tokenizer.encode_chat('hi'); sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, real_folder], timeout=120).returncode == 0


def test_tiny_speaks_bytes(tiny):
    text = "Grüße 🙂"
    ids = tiny.tokenizer.encode_chat(text)
    assert ids[0] == tiny.tokenizer.BOS and max(ids) < 512
    assert tiny.tokenizer.decode(tiny.tokenizer.encode(text)) == text
    assert tiny.tokenizer.decode([104, 105, *tiny.eos_token_ids, 400]) == "hi<400>"


def make_folder(folder, real_folder, **settings):
    (folder / "tokenizer.json").write_bytes((real_folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_older_places_of_the_chat_template(tmp_path, real_folder):
    template = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}{{ '!' if add_generation_prompt }}"
    make_folder(tmp_path, real_folder, chat_template=template, bos_token={"content": "<|im_start|>"})
    assert ChatTokenizer(tmp_path).render("x") == "<|im_start|>[x]!"
    named = [{"name": "tool", "template": "no"}, {"name": "default", "template": template}]
    make_folder(tmp_path, real_folder, chat_template=named, bos_token="<|im_start|>")
    assert ChatTokenizer(tmp_path).render("x") == "<|im_start|>[x]!"


def test_a_missing_template_is_named(tmp_path, real_folder):
    tokenizer = load_tokenizer(make_folder(tmp_path, real_folder))
    assert tokenizer.encode("x")
    with pytest.raises(ModelError, match="no chat template"):
        tokenizer.encode_chat("x")


def test_a_template_cannot_reach_the_machine(tmp_path, real_folder):
    make_folder(tmp_path, real_folder, chat_template="{{ messages.__class__.__mro__ }}{{ messages.append(1) }}")
    with pytest.raises(Exception, match="not safely callable|unsafe"):
        ChatTokenizer(tmp_path).render("x")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% if messages %}", "TemplateSyntaxError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ raise_exception('only system turns') }}", "only system turns"),
        ("{{ tools.names }}{{ missing.deeper }}", "UndefinedError"),
    ],
)
def test_a_broken_template_is_a_model_error_with_its_reason(tmp_path, real_folder, template, reason):
    tokenizer = load_tokenizer(make_folder(tmp_path, real_folder, chat_template=template))
    with pytest.raises(ModelError, match=f"the chat template of .* fails on these messages .*{reason}"):
        tokenizer.encode_chat("x")


def test_settings_of_another_shape_are_named_or_ignored(tmp_path, real_folder):
    make_folder(tmp_path, real_folder, eos_token={"text": "<|im_end|>"}, chat_template="{{ eos_token }}!")
    assert ChatTokenizer(tmp_path).render("x") == "!"
    with pytest.raises(ModelError, match="chat_template is a int"):
        load_tokenizer(make_folder(tmp_path, real_folder, chat_template=7))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="tokenizer.json is damaged"):
        load_tokenizer(tmp_path)


def test_several_eos_tokens(tmp_path, real_folder):
    folder = make_folder(tmp_path, real_folder, eos_token="<|im_end|>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 0]}))
    assert read_eos_ids(folder, load_tokenizer(folder)) == (7, 0, 2)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 9}))
    assert read_eos_ids(folder, load_tokenizer(folder)) == (9, 2)


@pytest.mark.parametrize("found", ["</s>", 2.0, [2, "</s>"], {"id": 2}, True, [-1]])
def test_an_eos_that_is_no_token_id_is_named(tmp_path, found):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": found}))
    with pytest.raises(ModelError, match=r"config\.json: an eos_token_id of .*; it must be"):
        read_eos_ids(tmp_path, load_tokenizer(tmp_path))
