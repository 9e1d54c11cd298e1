"""The stubs name what there is, and nothing else."""

import ast
import inspect
from pathlib import Path

import terracedb

PACKAGE = Path(terracedb.__file__).parent


def public(cls):
    ignored = {"__repr__", "__doc__", "__module__", "__init_subclass__", "__subclasshook__", "__weakref__", "__dict__"}
    own = {name for name in vars(cls) if name not in ignored}
    own |= {"__new__"} if "__new__" in vars(cls) else set()
    made = (
        terracedb.Db,
        terracedb.SstWriter,
        terracedb.Backups,
        terracedb.MergeOperator,
        terracedb.CompactionFilter,
    )
    return {name for name in own if name != "__new__" or cls in made}


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()


def test_the_stub_has_every_name():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(classes) | functions == set(terracedb.__all__)
    for name, node in classes.items():
        cls = getattr(terracedb, name)
        stubbed = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        if issubclass(cls, Exception):
            assert issubclass(cls, terracedb.Error)
            continue
        assert stubbed == public(cls), name


def test_what_the_stub_takes_by_name_is_taken_by_name():
    """Overloads, too: of them `test_signatures_agree` says nothing."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    checked = 0
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item in (item for item in node.body if isinstance(item, ast.FunctionDef)):
            if item.name.startswith("__"):
                continue
            there = getattr(getattr(terracedb, node.name), item.name)
            if not callable(there):
                continue
            parameters = inspect.signature(there).parameters.values()
            taken = {parameter.name for parameter in parameters if parameter.kind in named}
            names = {arg.arg for arg in item.args.args + item.args.kwonlyargs} - {"self", "cls"}
            assert names <= taken, f"{node.name}.{item.name}"
            checked += 1
    assert checked > 40


def test_iterators_are_generic_when_a_program_runs_too():
    assert terracedb.Iterator[bytes].__origin__ is terracedb.Iterator


def test_signatures_of_functions_agree():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions
    for node in functions:
        names = [arg.arg for arg in node.args.args + node.args.kwonlyargs]
        assert names == list(inspect.signature(getattr(terracedb, node.name)).parameters), node.name


def test_signatures_agree():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    checked = 0
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item in (item for item in node.body if isinstance(item, ast.FunctionDef)):
            if item.name.startswith("__") or any("overload" in ast.dump(d) for d in item.decorator_list):
                continue
            there = getattr(getattr(terracedb, node.name), item.name)
            if not callable(there):
                continue
            names = [arg.arg for arg in item.args.args + item.args.kwonlyargs]
            names += [item.args.kwarg.arg] if item.args.kwarg else []
            assert names == list(inspect.signature(there).parameters), f"{node.name}.{item.name}"
            checked += 1
    assert checked > 40
