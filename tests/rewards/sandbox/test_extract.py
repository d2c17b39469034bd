import pytest

from roll_core.rewards.sandbox.extract import find_program


@pytest.mark.parametrize(
    ("response", "text", "language"),
    [
        ("Draft:\n```python\na = 1\n```\nFinal:\n```python\na = 2\n```\nDone.", "a = 2\n", "python"),
        ("<think>```python\na = 1\n```</think>```py\na = 2\n```", "a = 2\n", "py"),
        ("```\na = 2\n```", "a = 2\n", ""),
        ("Text\n```python\na = 2", "a = 2", "python"),
        ("a = 2", "a = 2", ""),
        ("```python\na = 2\n```\nIt prints\n```text\n2\n```", "a = 2\n", "python"),
        ("```python\na = 2\n```\nIt prints:\n```\n2\n```", "a = 2\n", "python"),
        ("```python\na = 2\n```\nRun it:\n```bash\npython a.py\n```", "a = 2\n", "python"),
        ("```\na = 2\n```\nRun it:\n```sh\npython a.py\n```", "a = 2\n", ""),
        ("Draft:\n```\na = 1\n```\nFinal:\n```\na = 2\n```", "a = 2\n", ""),
        ("```sh\necho 1\n```", "echo 1\n", "sh"),
        ("<|begin_of_solution|>\n```cpp\nint a;\n```\n<|end_of_solution|> ```python\nx\n```", "int a;\n", "cpp"),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b\n", "python"),
        ('````python\ns = """\n```\n"""\n````', 's = """\n```\n"""\n', "python"),
    ],
)
def test_the_last_block_of_the_answer_is_the_program(response: str, text: str, language: str) -> None:
    found = find_program(response)
    assert found is not None and (found.text, found.language) == (text, language)


@pytest.mark.parametrize("response", ["", "  \n", "<think>a = 1</think>", "```python\n```"])
def test_an_answer_without_a_program_has_none(response: str) -> None:
    assert find_program(response) is None
