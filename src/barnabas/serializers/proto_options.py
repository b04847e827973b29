"""Options of a .proto text.

An option is kept as the text has it: its name, and the text of its value. The compiler would
interpret it by the definition of the option, which a registry may not have. The options of Protobuf
itself, such as `packed`, are set, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.serializers.errors import SchemaError
from barnabas.serializers.proto_tokens import TokenStream, unescape

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import UninterpretedOption

# Limit for messages and lists within the value of an option.
_DEPTH_MAX = 32


def read_option(tokens: TokenStream, options: Any) -> None:
    """Read a statement such as `option deprecated = true;` into a message of options."""
    tokens.expect("option")
    read_setting(tokens, options)
    tokens.expect(";")


def read_options(tokens: TokenStream, options: Any) -> None:
    """Read options in brackets, behind the opening one."""
    while True:
        read_setting(tokens, options)
        if not tokens.accept(","):
            tokens.expect("]")
            return


def read_setting(tokens: TokenStream, options: Any) -> None:
    """Read a name and a value."""
    made: UninterpretedOption = options.uninterpreted_option.add()
    _read_name(tokens, made)
    tokens.expect("=")
    if tokens.peek in ("{", "["):
        made.aggregate_value = _aggregate(tokens, 1)
    elif tokens.peek == "":
        made.string_value = unescape(tokens.text()).encode()
    else:
        # A name or a number, as the text has it.
        sign = "-" if tokens.accept("-") else ""
        tokens.accept("+")
        made.identifier_value = sign + tokens.take("name", "number").value
    [*names] = made.name
    if len(names) == 1 and not names[0].is_extension:
        _interpret(options, names[0].name_part, made)


def _interpret(options: Any, name: str, made: UninterpretedOption) -> None:
    """Set an option of Protobuf itself; other names, and values of other types, are left."""
    field = options.DESCRIPTOR.fields_by_name.get(name)
    word = made.identifier_value
    if field is None or field.is_repeated or field.message_type is not None:
        return
    if field.enum_type is not None:
        value = field.enum_type.values_by_name.get(word)
        if value is not None:
            setattr(options, name, value.number)
    elif field.type == field.TYPE_BOOL:
        if word in ("true", "false"):
            setattr(options, name, word == "true")
    elif field.type == field.TYPE_STRING and made.HasField("string_value"):
        setattr(options, name, made.string_value.decode(errors="replace"))


def _read_name(tokens: TokenStream, made: UninterpretedOption) -> None:
    """Read a name such as `deprecated` or `(pkg.rule).inner.field`."""
    while True:
        if tokens.accept("("):
            made.name.add(name_part=tokens.take("name").value, is_extension=True)
            tokens.expect(")")
        else:
            for word in tokens.take("name").value.lstrip(".").split("."):
                made.name.add(name_part=word, is_extension=False)
        if tokens.peek == "=":
            return


def aggregate_text(text: str) -> str:
    """Return the text of a message as `read_setting` keeps it.

    Args:
        text: The fields of the message in Protobuf's text format.
    """
    return _aggregate(TokenStream(f"{{{text}}}"), 1)


def _aggregate(tokens: TokenStream, depth: int) -> str:
    """Return the text of a message or a list with one field or value a line."""
    if depth > _DEPTH_MAX:
        raise SchemaError(f"the value of an option is nested over {_DEPTH_MAX} levels deep")
    closing = {"{": "}", "[": "]", "<": ">"}[tokens.take("symbol").value]
    is_list = closing == "]"
    parts: list[str] = []
    while not tokens.accept(closing):
        key = "" if is_list else _aggregate_key(tokens) + ": "
        parts.append(key + _aggregate_value(tokens, depth))
        if not tokens.accept(","):
            tokens.accept(";")
    lines = ",\n".join(parts).replace("\n", "\n  ")
    opening, end = ("[", "]") if is_list else ("{", "}")
    return f"{opening}\n  {lines}\n{end}" if parts else opening + end


def _aggregate_key(tokens: TokenStream) -> str:
    if tokens.accept("["):
        words = []
        while not tokens.accept("]"):
            words.append(tokens.take().value)
        key = f"[{''.join(words)}]"
    else:
        key = tokens.take("name").value
    tokens.accept(":")
    return key


def _aggregate_value(tokens: TokenStream, depth: int) -> str:
    if tokens.peek in ("{", "[", "<"):
        return _aggregate(tokens, depth + 1)
    if tokens.peek == "":
        return quoted(unescape(tokens.text()))
    sign = "-" if tokens.accept("-") else ""
    return sign + tokens.take("name", "number").value


_ESCAPES = str.maketrans(
    {
        "\a": r"\a",
        "\b": r"\b",
        "\f": r"\f",
        "\n": r"\n",
        "\r": r"\r",
        "\t": r"\t",
        "\v": r"\v",
        "\\": r"\\",
        "'": r"\'",
        '"': r"\"",
    }
)


def quoted(text: str) -> str:
    """Return a text in quotes, with escapes."""
    return f'"{text.translate(_ESCAPES)}"'
