"""JSON Schema, as far as docs/schema uses it: no package is needed to run the tests. With closed=True an object may hold
nothing that its schema does not name: a key that the programs write and nobody describes is an error in a test."""
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schema"
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "properties", "required", "additionalProperties", "items", "enum", "const",
         "anyOf", "oneOf", "pattern", "minItems", "maxItems", "maxLength", "minimum", "maximum"}


def load(name):
    return json.loads((FOLDER / f"{name}.schema.json").read_text())


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Validator:
    def __init__(self, name, closed=False):
        self.root, self.closed, self.files = load(name), closed, {}

    def errors(self, value, schema=None, root=None, at="$"):
        root = root or self.root
        schema = self.root if schema is None else schema
        if isinstance(schema, bool):
            return [] if schema else [f"{at}: nothing may be here"]
        assert set(schema) <= KNOWN, f"{at}: {set(schema) - KNOWN} is not understood here"
        if "$ref" in schema:
            file, _, path = schema["$ref"].partition("#/$defs/")
            if file:
                root = self.files.setdefault(file, json.loads((FOLDER / file).read_text()))
            return self.errors(value, root["$defs"][path], root, at)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                tried = [self.errors(value, one, root, at) for one in schema[key]]
                good = sum(not e for e in tried)
                if good != 1 and (good == 0 or key == "oneOf"):
                    return next((e for e in tried if e and not e[0].endswith("['null']")), tried[0]) or [f"{at}: fits several"]
                return []
        out = []
        if "type" in schema:
            types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            if not any(is_type(value, t) for t in types):
                return [f"{at}: {json.dumps(value)[:80]} is no {types}"]
        if "enum" in schema and not any(same(value, v) for v in schema["enum"]):
            out.append(f"{at}: {json.dumps(value)[:80]} is none of {schema['enum']}")
        if "const" in schema and not same(value, schema["const"]):
            out.append(f"{at}: {json.dumps(value)[:80]} is not {schema['const']}")
        if isinstance(value, str):
            if "pattern" in schema and not re.search(schema["pattern"], value):
                out.append(f"{at}: {value[:80]} is not {schema['pattern']}")
            if len(value) > schema.get("maxLength", len(value)):
                out.append(f"{at}: longer than {schema['maxLength']}")
        if is_type(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            out.append(f"{at}: {value} is out of range")
        if isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                out.append(f"{at}: {len(value)} items")
            for i, one in enumerate(value):
                out += self.errors(one, schema.get("items", {}), root, f"{at}[{i}]")
        if isinstance(value, dict):
            out += self.members(value, schema, root, at)
        return out

    def members(self, value, schema, root, at):
        out = [f"{at}: no {key}" for key in schema.get("required", []) if key not in value]
        named, rest = schema.get("properties", {}), schema.get("additionalProperties", not (self.closed and "properties" in schema))
        for key, one in value.items():
            if key in named:
                out += self.errors(one, named[key], root, f"{at}.{key}")
            elif rest is False:
                out.append(f"{at}: {key} is not described")
            elif isinstance(rest, dict):
                out += self.errors(one, rest, root, f"{at}.{key}")
        return out
