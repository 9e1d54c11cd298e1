//! `docs/options.md` names every option, and says of each what is true.

use terrace::{Db, LIVE_FAMILY_OPTIONS, LIVE_OPTIONS, OPTIONS, Options};

const PAGE: &str = include_str!("../../../../docs/options.md");
const STORE: &str = include_str!("../../src/options/mod.rs");
const FAMILY: &str = include_str!("../../src/options/cf_options.rs");

/// The public fields of a struct in a source.
fn fields(source: &'static str, name: &str) -> Vec<&'static str> {
    let (_, body) = source.split_once(&format!("pub struct {name} {{")).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let field = |line: &'static str| Some(line.strip_prefix("    pub ")?.split_once(':')?.0);
    body.lines().filter_map(field).collect()
}

/// Name, default and whether it is live, of every row of the table under the heading that ends with the struct's name.
fn rows(name: &str) -> Vec<[&'static str; 3]> {
    let (_, table) = PAGE.split_once(&format!(": `{name}`\n")).unwrap();
    let table = table.split("\n## ").next().unwrap();
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.strip_suffix('`')?;
        Some([name, cells.next()?, cells.next()?])
    };
    table.lines().filter_map(row).collect()
}

/// A default of the page as [`Options::option`] says it.
fn plain(cell: &str) -> String {
    let text = cell.trim_matches('`');
    let units = [(" KiB", 10), (" MiB", 20), (" GiB", 30)];
    let sized = units.iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some((number << shift).to_string())
    });
    sized.unwrap_or(text.to_string())
}

#[test]
fn the_page_of_options_names_all_of_them_and_says_which_are_live() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (mut live, mut by_name) = (Vec::new(), Vec::new());
    for (source, name) in [(STORE, "Options"), (STORE, "AdvancedOptions"), (FAMILY, "CfOptions")] {
        let rows = rows(name);
        let named: Vec<&str> = rows.iter().map(|[option, ..]| *option).collect();
        assert_eq!(named, fields(source, name), "{name}");
        for [option, default, is_live] in rows {
            let is_live = is_live.starts_with("yes");
            assert_eq!(is_live, LIVE_OPTIONS.contains(&option), "{option}");
            assert_eq!(is_live && name == "CfOptions", LIVE_FAMILY_OPTIONS.contains(&option));
            if OPTIONS.contains(&option) {
                by_name.push(option);
                let found = Options::default().option(option);
                assert_eq!(found, Some(plain(default)), "{option}");
                assert_eq!(db.option(option), found.filter(|_| is_live), "{option}");
            }
            if is_live {
                live.push(option);
            }
        }
    }
    assert_eq!(live.len(), LIVE_OPTIONS.len());
    // Those are parts of `direct_io`.
    by_name.extend(["direct_reads", "direct_writes"]);
    by_name.sort_unstable();
    let mut all = OPTIONS.to_vec();
    all.sort_unstable();
    assert_eq!(by_name, all);
}
