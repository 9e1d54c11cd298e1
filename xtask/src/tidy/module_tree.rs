//! The modules of every crate, with what each of their files names of the others: what
//! [`super::circles`] looks at.
//!
//! Names are resolved as rustc does it, through imports and re-exports, to the file that defines them.
//! A method called on a value, and a trait's implementation, name no file and are not seen. Test code is
//! left out.

use super::{Tree, is_test_path};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Attribute, ImplItem, Item, TraitItem, UseTree, Visibility};

/// How many imports and re-exports a name is followed through.
const MAX_STEPS: usize = 16;

/// Where a file names an item of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The file that names it.
    pub from: String,
    /// The file that defines it.
    pub to: String,
    /// The line in `from`.
    pub line: usize,
    /// The path as it is written.
    pub path: String,
}

/// All modules of a crate.
#[derive(Debug)]
pub struct CrateModules {
    /// The directory of the crate's root file: `crates/log/src/`.
    pub dir: String,
    /// The file of every module by the module's path; the root has the empty one.
    pub files: BTreeMap<Vec<String>, String>,
    /// What the files name of each other, without what a file names of itself.
    pub uses: Vec<Use>,
    /// Files that are not Rust.
    pub broken: Vec<(String, String)>,
}

/// The modules of every crate of the tree; a library and a program of one package are two.
pub fn crates(tree: &Tree) -> Vec<CrateModules> {
    let roots = tree.rust().filter(|(path, _)| {
        (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")) && !is_test_path(path)
    });
    roots.map(|(path, _)| Reader::read(tree, path)).collect()
}

/// A path as it is written, and its line.
#[derive(Debug, Clone)]
struct Path {
    segments: Vec<String>,
    line: usize,
}

/// A module: a file's, or one that stands in braces in a file.
#[derive(Debug, Default)]
struct Module {
    file: String,
    path: Vec<String>,
    items: BTreeSet<String>,
    children: BTreeSet<String>,
    /// Names that `use` brings in.
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
    /// What the module names: its private imports, and paths in its code.
    named: Vec<Path>,
}

/// What a path leads to.
enum Target<'a> {
    Module(&'a Module),
    Item(&'a Module),
}

#[derive(Default)]
struct Reader {
    modules: BTreeMap<Vec<String>, Module>,
    files: BTreeMap<Vec<String>, String>,
    broken: Vec<(String, String)>,
}

impl Reader {
    fn read(tree: &Tree, root: &str) -> CrateModules {
        let mut reader = Self::default();
        reader.add_file(tree, root, Vec::new());
        let mut uses: Vec<Use> = reader.modules.values().flat_map(|m| reader.uses_of(m)).collect();
        uses.sort();
        uses.dedup();
        let dir = root.rsplit_once('/').map_or("", |(dir, _)| dir);
        let Self { files, broken, .. } = reader;
        CrateModules { dir: format!("{dir}/"), files, uses, broken }
    }

    fn add_file(&mut self, tree: &Tree, file: &str, path: Vec<String>) {
        let Some(text) = tree.text(file) else { return };
        match syn::parse_file(text) {
            Ok(parsed) => {
                self.files.insert(path.clone(), file.to_string());
                self.add_module(tree, file, path, parsed.items);
            }
            Err(error) => self.broken.push((file.to_string(), error.to_string())),
        }
    }

    fn add_module(&mut self, tree: &Tree, file: &str, path: Vec<String>, items: Vec<Item>) {
        let mut module = Module { file: file.to_string(), path: path.clone(), ..Module::default() };
        let mut shown = BTreeSet::new();
        for item in items {
            match item {
                Item::Mod(inner) if !is_test(&inner.attrs) => {
                    let name = inner.ident.to_string();
                    let below = [path.clone(), vec![name.clone()]].concat();
                    module.children.insert(name);
                    match inner.content {
                        Some((_, items)) => self.add_module(tree, file, below, items),
                        None => {
                            if let Some(file) = file_of(tree, file, &below) {
                                self.add_file(tree, &file, below);
                            }
                        }
                    }
                }
                Item::Use(import) if !is_test(&import.attrs) => {
                    let is_private = matches!(import.vis, Visibility::Inherited);
                    let mut found = Vec::new();
                    let _ = flatten(&import.tree, &mut Vec::new(), &mut found);
                    for (name, path) in found {
                        if is_private {
                            module.named.push(path.clone());
                        } else {
                            shown.extend(name.clone());
                        }
                        match name {
                            Some(name) => drop(module.imports.insert(name, path)),
                            None => module.globs.push(path),
                        }
                    }
                }
                // Those of tests.
                Item::Mod(_) | Item::Use(_) => {}
                item => module.add_item(item),
            }
        }
        // A name that a module re-exports and also uses itself counts as used.
        let used = module.named.iter().filter_map(|path| match &path.segments[..] {
            [only] if shown.contains(only) => Some(only.clone()),
            _ => None,
        });
        let used: BTreeSet<String> = used.collect();
        let used = used.iter().filter_map(|name| module.imports.get(name).cloned());
        let used: Vec<Path> = used.collect();
        module.named.extend(used);
        module.named.retain(|path| path.segments.len() > 1);
        self.modules.insert(path, module);
    }

    /// What a module names that other files define.
    fn uses_of<'a>(&'a self, module: &'a Module) -> impl Iterator<Item = Use> + 'a {
        module.named.iter().filter_map(|path| {
            let Target::Item(target) = self.resolve(module, &path.segments, MAX_STEPS)? else {
                return None;
            };
            (target.file != module.file).then(|| Use {
                from: module.file.clone(),
                to: target.file.clone(),
                line: path.line,
                path: path.segments.join("::"),
            })
        })
    }

    fn module(&self, path: &[String]) -> Option<&Module> {
        self.modules.get(path)
    }

    fn resolve<'a>(
        &'a self,
        from: &'a Module,
        segments: &[String],
        steps: usize,
    ) -> Option<Target<'a>> {
        let (first, rest) = segments.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(self.module(&[])?),
            "self" => Target::Module(from),
            "super" => Target::Module(self.parent(from)?),
            name => self.find(from, name, steps)?,
        };
        for segment in rest {
            let Target::Module(module) = at else { break };
            at = match segment.as_str() {
                "self" => Target::Module(module),
                "super" => Target::Module(self.parent(module)?),
                name => self.find(module, name, steps)?,
            };
        }
        Some(at)
    }

    fn parent(&self, module: &Module) -> Option<&Module> {
        let (_, above) = module.path.split_last()?;
        self.module(above)
    }

    /// What `name` means in `module`.
    fn find<'a>(&'a self, module: &'a Module, name: &str, steps: usize) -> Option<Target<'a>> {
        let steps = steps.checked_sub(1)?;
        if module.children.contains(name) {
            let below = [&module.path[..], &[name.to_string()]].concat();
            return self.module(&below).map(Target::Module);
        }
        if module.items.contains(name) {
            return Some(Target::Item(module));
        }
        if let Some(import) = module.imports.get(name) {
            return self.resolve(module, &import.segments, steps);
        }
        module.globs.iter().find_map(|glob| match self.resolve(module, &glob.segments, steps)? {
            Target::Module(of) if of.path != module.path => self.find(of, name, steps),
            Target::Module(_) | Target::Item(_) => None,
        })
    }
}

impl Module {
    fn add_item(&mut self, item: Item) {
        if is_test(attributes(&item)) {
            return;
        }
        let name = match &item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.items.extend(name.map(ToString::to_string));
        paths(without_tests(item).to_token_stream(), &mut self.named);
    }
}

/// The item without the test code in it.
fn without_tests(mut item: Item) -> Item {
    match &mut item {
        Item::Impl(block) => block.items.retain(|item| match item {
            ImplItem::Fn(item) => !is_test(&item.attrs),
            ImplItem::Const(item) => !is_test(&item.attrs),
            _ => true,
        }),
        Item::Trait(block) => block.items.retain(|item| match item {
            TraitItem::Fn(item) => !is_test(&item.attrs),
            _ => true,
        }),
        _ => {}
    }
    item
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether what has these attributes is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let words = attribute.meta.to_token_stream().to_string();
        let words: Vec<&str> = words.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
        words.first() == Some(&"test")
            || (words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not"))
    })
}

/// The file of module `path` that `parent` declares.
fn file_of(tree: &Tree, parent: &str, path: &[String]) -> Option<String> {
    let name = path.last()?;
    let (dir, own) = parent.rsplit_once('/')?;
    let below = match own.trim_end_matches(".rs") {
        "mod" | "lib" | "main" => dir.to_string(),
        own => format!("{dir}/{own}"),
    };
    let candidates = [format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")];
    candidates.into_iter().find(|file| tree.text(file).is_some())
}

/// The names that a `use` brings in, each with its whole path; a glob has no name.
fn flatten(
    tree: &UseTree,
    above: &mut Vec<String>,
    found: &mut Vec<(Option<String>, Path)>,
) -> Option<()> {
    let line_of = |tokens: TokenStream| -> usize {
        tokens.into_iter().next().map_or(1, |token| token.span().start().line)
    };
    let line = line_of(tree.to_token_stream());
    match tree {
        UseTree::Path(path) => {
            above.push(path.ident.to_string());
            let _ = flatten(&path.tree, above, found);
            above.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                let _ = flatten(tree, above, found);
            }
        }
        UseTree::Glob(_) => found.push((None, Path { segments: above.clone(), line })),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            let (name, segments) = match name.as_str() {
                "self" => (above.last()?.clone(), above.clone()),
                _ => (name.clone(), [&above[..], &[name]].concat()),
            };
            found.push((Some(name), Path { segments, line }));
        }
        UseTree::Rename(rename) => {
            let mut segments = above.clone();
            if rename.ident != "self" {
                segments.push(rename.ident.to_string());
            }
            found.push((Some(rename.rename.to_string()), Path { segments, line }));
        }
    }
    Some(())
}

/// Every path in `tokens`, single words included; those in macros too.
fn paths(tokens: TokenStream, found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_mark = |at: usize, mark: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == mark);
    let joins = |at: usize| is_mark(at, ':') && is_mark(at + 1, ':');
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => paths(group.stream(), found),
            TokenTree::Ident(first) => {
                let continues = at > 0 && (is_mark(at - 1, '.') || (at > 1 && joins(at - 2)));
                let line = first.span().start().line;
                let mut segments = vec![first.to_string()];
                while joins(at + 1)
                    && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                {
                    segments.push(next.to_string());
                    at += 3;
                }
                if !continues {
                    if joins(at + 1)
                        && let Some(TokenTree::Group(group)) = tokens.get(at + 3)
                        && group.delimiter() == Delimiter::Brace
                    {
                        // An import inside a function.
                        let mut below = Vec::new();
                        paths(group.stream(), &mut below);
                        found.extend(below.into_iter().map(|path| Path {
                            segments: [&segments[..], &path.segments].concat(),
                            line: path.line,
                        }));
                        at += 3;
                    }
                    found.push(Path { segments, line });
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    fn uses(files: &[(&str, &str)]) -> Vec<(String, String, String)> {
        let read = crates(&tree(files));
        let short = |file: &str| file.trim_start_matches("a/src/").to_string();
        let uses = read.iter().flat_map(|of| &of.uses);
        uses.map(|used| (short(&used.from), short(&used.to), used.path.clone())).collect()
    }

    fn named(from: &str, to: &str, path: &str) -> (String, String, String) {
        (from.into(), to.into(), path.into())
    }

    #[test]
    fn names_lead_through_imports_and_re_exports_to_the_file_that_defines_them() {
        let files = [
            ("a/src/lib.rs", "mod one; mod two; pub use one::One;"),
            ("a/src/one.rs", "mod deep; pub use deep::Deep; pub struct One;"),
            ("a/src/one/deep.rs", "pub struct Deep; pub const N: u32 = 1;"),
            (
                "a/src/two.rs",
                "use crate::{One, one::{self, Deep as D}}; fn f() -> u32 { one::deep::N }",
            ),
        ];
        assert_eq!(
            uses(&files),
            [
                named("two.rs", "one.rs", "crate::One"),
                named("two.rs", "one/deep.rs", "crate::one::Deep"),
                named("two.rs", "one/deep.rs", "one::deep::N"),
            ]
        );
    }

    #[test]
    fn a_parent_is_used_by_its_name_and_uses_what_it_names() {
        let files = [
            ("a/src/lib.rs", "mod x;"),
            ("a/src/x/mod.rs", "mod y; use y::Y; pub struct X; mod z; pub use z::Z;"),
            ("a/src/x/y.rs", "pub struct Y(super::X);"),
            ("a/src/x/z.rs", "pub struct Z;"),
        ];
        let found = uses(&files);
        assert_eq!(
            found,
            [named("x/mod.rs", "x/y.rs", "y::Y"), named("x/y.rs", "x/mod.rs", "super::X")]
        );
    }

    #[test]
    fn a_re_export_that_is_used_as_well_counts() {
        let files = [
            ("a/src/lib.rs", "mod z; pub use z::Z; fn f(_: Z) {}"),
            ("a/src/z.rs", "pub struct Z;"),
        ];
        assert_eq!(uses(&files), [named("lib.rs", "z.rs", "z::Z")]);
    }

    #[test]
    fn macros_are_read_and_tests_are_not() {
        let files = [
            (
                "a/src/lib.rs",
                "mod z; #[cfg(test)] mod t; fn f() { println!(\"{}\", crate::z::N); }",
            ),
            ("a/src/z.rs", "pub const N: u32 = 1; #[cfg(test)] mod tests { use crate::f; }"),
            ("a/src/t.rs", "use crate::z::N;"),
        ];
        assert_eq!(uses(&files), [named("lib.rs", "z.rs", "crate::z::N")]);
    }

    #[test]
    fn globs_and_imports_inside_functions_are_followed() {
        let files = [
            ("a/src/lib.rs", "mod y; mod z; use z::*; fn f() { use crate::y::{Y, W}; inner::g() }"),
            ("a/src/y.rs", "pub struct Y; pub struct W;"),
            ("a/src/z.rs", "pub mod inner { pub fn g() {} }"),
        ];
        let found = uses(&files);
        assert!(found.contains(&named("lib.rs", "y.rs", "crate::y::W")), "{found:?}");
        assert!(found.contains(&named("lib.rs", "z.rs", "inner::g")), "{found:?}");
    }

    #[test]
    fn what_is_not_rust_is_told() {
        let read = crates(&tree(&[("a/src/lib.rs", "fn {")]));
        assert_eq!(read[0].broken.len(), 1);
    }
}
