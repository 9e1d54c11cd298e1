//! `terrace demo`: it ends, and its figures are there and plausible.

use crate::program::Program;

#[test]
fn the_demo_shows_one_screen_of_figures() {
    let program = Program::new();
    let screen = program.ok(&["demo", "--seconds", "0.1", "--dir", "kept"]);
    for part in
        ["226,889 package names", "Levels", "L6", "lookups/s", "2 threads", "filters", "Try next"]
    {
        assert!(screen.contains(part), "no `{part}` in:\n{screen}");
    }
    let (figures, commands) = screen.split_once("Try next").unwrap();
    assert!(figures.lines().all(|line| line.chars().count() <= 100), "{screen}");
    assert!(screen.lines().count() < 45 && commands.contains("get semver --dir kept"), "{screen}");
    assert!(!screen.contains('\x1b'), "colours although this is no terminal");
    assert!(program.ok(&["verify", "--dir", "kept"]).contains("226889 entries"));
}

#[test]
fn the_figures_come_as_json_too() {
    let program = Program::new();
    let text = program.ok(&["demo", "--seconds", "1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["load"]["records"], 226_889);
    assert!(json["load"]["write_amp"].as_f64().unwrap() > 1.0);
    for shape in ["scarce", "cached"] {
        let stretches = json[shape]["stretches"].as_array().unwrap();
        assert_eq!(stretches.len(), 2);
        for stretch in stretches {
            let number = |name: &str| stretch[name].as_f64().unwrap();
            assert!(number("ops_per_s") > 0.0, "{stretch}");
            assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("p999_us"));
            let absent = number("absent") / number("lookups");
            // Each lookup tosses a coin; a slow device gives few of them. Six standard deviations.
            let slack = 0.05_f64.max(3.0 / number("lookups").sqrt());
            assert!((absent - 0.5).abs() < slack, "half of the names are absent, not {absent}");
        }
    }
    let reads = |shape: &str| json[shape]["stretches"][0]["device_reads_per_op"].as_f64().unwrap();
    assert!(reads("scarce") > reads("cached") && reads("cached") < 0.001, "{text}");
    // The temporary store is gone with the process.
    assert_eq!(std::fs::read_dir(program.path("")).unwrap().count(), 0);
}
