//! The table is sound; sources in their order; changes all or nothing; the file keeps its looks.

use super::*;
use std::fs;
use tempfile::TempDir;

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn flags(all: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(None, [], pairs(all))
}

/// A folder with a file of this text.
fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("terrace.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn value(config: &Config, name: &str) -> String {
    let found = config.get(&[name.as_bytes()]);
    assert_eq!(found.len(), 1, "{name}");
    found[0].1.clone()
}

fn agree(_: &Settings, _: &Settings, _: &[&'static str]) -> Result<(), String> {
    Ok(())
}

fn no_users(_: &Settings) -> Result<Vec<UserChange>, String> {
    Ok(Vec::new())
}

#[test]
fn every_option_takes_its_default_and_what_it_shows() {
    let defaults = Settings::default();
    defaults.check().unwrap();
    for option in all_options() {
        let mut settings = Settings::default();
        option.assign(&mut settings, option.default).unwrap();
        assert_eq!(settings, defaults, "{}", option.name);
        option.assign(&mut settings, &option.show(&defaults)).unwrap();
        assert_eq!(settings, defaults, "{}", option.name);
        assert!(option.doc.ends_with('.') && !option.doc.contains("  "), "{}", option.name);
        assert!(option.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = all_options().flat_map(OptionSpec::names).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn paths_and_listeners_never_change_by_command() {
    // A key file is read only, and refused unless it has the keys that the store needs.
    for option in OPTIONS.iter().filter(|option| option.name != "encryption-key-file") {
        let touchy = option.kind == Kind::Path || option.kind == Kind::Addresses;
        assert!(!touchy || option.when == When::Start, "{}", option.name);
    }
}

#[test]
fn hostile_texts_are_refused() {
    let control = ["\0", "a\nb", "\r\n+OK", "\u{7f}", "\u{85}"];
    let numbers = ["-9223372036854775809", "99999999999999999999gb", "NaN", "1e999", "-0x1"];
    for option in all_options().filter(|option| option.kind != Kind::Secret) {
        let is_text = matches!(option.kind, Kind::Path | Kind::Text | Kind::HostNames);
        for text in control.iter().chain(numbers.iter().filter(|_| !is_text)) {
            let mut settings = Settings::default();
            let error = option.assign(&mut settings, text).unwrap_err();
            assert_eq!(settings, Settings::default(), "{} {text:?}", option.name);
            assert!(matches!(error, ConfigError::Invalid { .. }));
            assert!(!error.reply().contains('\n'));
        }
    }
}

#[test]
fn sizes_are_read_as_redis_reads_them() {
    for (text, size) in [
        ("0", 0),
        ("10B", 10),
        ("1k", 1000),
        ("1Kb", 1024),
        ("2mb", 2 << 20),
        ("1g", 1_000_000_000),
    ] {
        assert_eq!(units::bytes(text), Some(size), "{text}");
    }
    for text in ["", "mb", "1.5gb", "-1", "1 mb", "1tb", "18446744073709551616", "17179869184gb"] {
        assert_eq!(units::bytes(text), None, "{text}");
    }
}

#[test]
fn refusals_name_option_value_and_range() {
    let error = flags(&[("maxmemory", "1mb")]).unwrap_err();
    assert!(
        error.to_string().starts_with("maxmemory is \"1mb\"; it must be a memory value from 4mb")
    );
    let error = flags(&[("--prot", "1")]).unwrap_err();
    assert_eq!(error.to_string(), "there is no option `prot`; did you mean `port`?");
    for (name, text) in [
        ("port", "65536"),
        ("port", "-1"),
        ("loglevel", "loud"),
        ("maxclients", "0"),
        ("gc-garbage-ratio", "0.01"),
        ("bind", "not an address"),
        ("filter", ""),
        ("filter", "ribbon:0"),
        ("compression", "lz4,,"),
        ("protected-mode", "maybe"),
        ("dir", ""),
    ] {
        assert!(
            matches!(flags(&[(name, text)]), Err(ConfigError::Invalid { .. })),
            "{name} {text}"
        );
    }
}

#[test]
fn options_that_clash_are_refused_together() {
    for clash in [
        &[("port", "7000"), ("http-port", "7000")][..],
        &[("tls-port", "7001")],
        &[("tls-auth-clients", "yes")],
        &[("bind", "")],
        &[("bind", "127.0.0.1 ::1 127.0.0.1")],
        &[("http-bind", "-127.0.0.1 localhost")],
        &[("bind", "* 127.0.0.1")],
        &[("bind", "-::1 ::")],
        &[("http-bind", "10.0.0.1 * -::1")],
        &[("client-query-buffer-limit", "1mb")],
        &[("cluster-etcd", " ,, ")],
        &[("cluster-announce-ip", "a b")],
        &[("cluster-announce-ip", "[::1]")],
        &[("cluster-announce-ip", "host:6379")],
        &[
            ("cluster-enabled", "yes"),
            ("cluster-bind", "0.0.0.0"),
            ("cluster-secret", "secret"),
            ("cluster-announce-ip", " "),
        ],
    ] {
        assert!(matches!(flags(clash), Err(ConfigError::Conflict { .. })), "{clash:?}");
    }
    for announced in ["10.0.0.1", "::1", "node-1.cluster_a.example", ""] {
        flags(&[("cluster-announce-ip", announced)]).unwrap();
    }
    flags(&[("port", "0"), ("http-port", "0")]).unwrap();
    let said = flags(&[("bind", "localhost 127.0.0.1")]).unwrap_err().to_string();
    assert_eq!(said, "bind: 127.0.0.1 is there twice; leave one of them out");
    for (bind, said) in [
        ("* localhost", "bind: * includes localhost; leave one of them out"),
        ("::1 0.0.0.0 ::", "bind: :: includes ::1; leave one of them out"),
        ("::1 ::*", "bind: ::* includes ::1; leave one of them out"),
        ("* 0.0.0.0", "bind: 0.0.0.0 is there twice; leave one of them out"),
    ] {
        assert_eq!(flags(&[("bind", bind)]).unwrap_err().to_string(), said);
    }
    // The second one is left out, since the first one has it; the two are of IPv4 and of IPv6; and nothing is listened on.
    for sound in [
        &[("bind", "::1 -::1 *")][..],
        &[("bind", "* -127.0.0.1 -0.0.0.0 ::")],
        &[("bind", "0.0.0.0 ::1")],
        // As in the file that comes with Redis.
        &[("bind", "* -::*")],
        &[("http-bind", "::1 ::1"), ("http-port", "0")],
    ] {
        flags(sound).unwrap();
    }
}

#[test]
fn flags_win_over_environment_over_file_over_default() {
    let (_folder, path) = file("port = 1\ntimeout = 1\nmaxclients = 1\n");
    let environment = pairs(&[
        ("TERRACE_TIMEOUT", "2"),
        ("TERRACE_MAXCLIENTS", "2"),
        ("TERRACE_TEST_EFFORT", "9"),
        ("TERRACE_PROT", "9"),
        ("HOME", "/"),
    ]);
    let flags = pairs(&[("--maxclients", "3"), ("maxclients", "4")]);
    let config = Config::load(Some(&path), environment, flags).unwrap();
    let settings = config.settings();
    assert_eq!((settings.port, settings.timeout, settings.maxclients), (1, 2, 4));
    assert_eq!(settings.databases, 16);
    let source = |name| config.source(name).unwrap();
    assert_eq!(source("port"), Source::File);
    assert_eq!(source("timeout"), Source::Environment);
    assert_eq!(source("maxclients"), Source::Flag);
    assert_eq!(source("databases"), Source::Default);
    assert_eq!(config.warnings().len(), 1);
    assert!(config.warnings()[0].contains("`port`"));
}

#[test]
fn files_take_every_spelling_of_a_value() {
    let (_folder, path) = file(
        "maxmemory = \"64mb\"\nbind = [\"127.0.0.1\", \"::1\"]\nprotected-mode = false\n\
         port-search = \"no\"\ngc-garbage-ratio = 0.5\ncompression = [\"none\", \"zstd\"]\n\
         [[user]]\nname = \"a\"\nrules = \"on ~x +get\"\n[[user]]\nname = \"b\"\nrules = [\"on\"]\n",
    );
    let settings = Config::load(Some(&path), [], []).unwrap().settings();
    assert_eq!(settings.maxmemory, 64 << 20);
    assert_eq!(settings.bind, ["127.0.0.1", "::1"]);
    assert!(!settings.protected_mode && !settings.port_search);
    assert_eq!(settings.engine_options().default_family.compression.len(), 2);
    assert_eq!(settings.users[0].rules, ["on", "~x", "+get"]);
    assert_eq!(settings.users[1].name, "b");
}

#[test]
fn a_password_of_digits_is_what_is_written() {
    for written in ["12345", "1.50", "1e3", "1_000", "0x10", "-7"] {
        let (_folder, path) = file(&format!("requirepass = {written} # of digits\n"));
        let config = Config::load(Some(&path), [], []).unwrap();
        assert_eq!(value(&config, "requirepass"), written);
    }
    let (_folder, path) = file("requirepass = true\n");
    let refused = Config::load(Some(&path), [], []).unwrap_err().to_string();
    assert!(refused.contains("requirepass: it must be a text"), "{refused}");
}

#[test]
fn files_with_errors_say_where() {
    for (text, part) in [
        ("prot = 1\n", "did you mean `port`"),
        ("a = 1\nport = = 2\n", "line 2"),
        ("port = [1]\n", "whole number"),
        ("requirepass = { x = 1 }\n", "text"),
        ("[server]\nport = 1\n", "no option `server`"),
        ("user = 3\n", "[[user]]"),
        ("[[user]]\nrules = \"on\"\n", "name"),
        ("[[user]]\nname = \"a\"\n[[user]]\nname = \"a\"\n", "twice"),
        ("[[user]]\nname = \"a\"\npassword = \"hunter2\"\n", "no `password`"),
        ("maxmemory = 99999999\nmemory-budget = 99999999\n", "twice"),
    ] {
        let (_folder, path) = file(text);
        let error = Config::load(Some(&path), [], []).unwrap_err().to_string();
        assert!(error.contains(part), "{text:?}: {error}");
        assert!(!error.contains("hunter2"));
    }
    let (_folder, path) = file("requirepass = \"hunter2\n");
    let error = Config::load(Some(&path), [], []).unwrap_err();
    assert!(!format!("{error}{error:?}").contains("hunter2"), "{error}");
    std::fs::write(&path, b"port = 1 # \xff\n").unwrap();
    let error = Config::load(Some(&path), [], []).unwrap_err().to_string();
    assert!(error.ends_with("stream did not contain valid UTF-8"), "{error}");
    assert!(Config::load(Some(Path::new("/no/such.toml")), [], []).is_err());
}

#[test]
fn get_takes_globs_and_other_names() {
    let config = flags(&[("requirepass", "hunter2")]).unwrap();
    let names: Vec<_> = config.get(&[b"SLOWLOG-*"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["slowlog-log-slower-than", "slowlog-max-len"]);
    assert_eq!(value(&config, "memory-budget"), (512 << 20).to_string());
    assert_eq!(value(&config, "save"), "");
    assert_eq!(config.get(&[b"port", b"por?", b"port"]).len(), 1);
    assert!(config.get(&[]).is_empty() && config.get(&[b"nothing-*"]).is_empty());
    // As in Redis, which has them for its own tests.
    let shown = config.get(&[b"*", b"*-delay", b"key-load-dela?"]);
    let is_shown = |name: &str| shown.iter().any(|(one, _)| *one == name);
    assert!(is_shown("repl-diskless-sync-delay"));
    assert!(!is_shown("key-load-delay") && !is_shown("rdb-key-save-delay"));
    assert_eq!(config.get(&[b"KEY-load-delay", b"rdb-key-save-delay"]).len(), 2);
    assert_eq!(value(&config, "requirepass"), "hunter2");
    let told = format!("{:?} {:?} {config:?}", config.dump(), config.settings());
    assert!(!told.contains("hunter2"));
    assert!(told.contains("(hidden)"));
    let (_folder, path) =
        file("requirepass = \"hunter2\"\n[[user]]\nname = \"a\"\nrules = [\"on\", \">hunter2\"]\n");
    let config = Config::load(Some(&path), [], []).unwrap();
    assert!(!format!("{config:?} {:?}", config.dump()).contains("hunter2"));
    assert_eq!(value(&config, "requirepass"), "hunter2");
}

#[test]
fn set_is_all_or_nothing() {
    let config = Config::default();
    let before = config.settings();
    for (pairs, reply) in [
        (
            &[("timeout", "5"), ("maxmemory", "1")][..],
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be between 4194304 and",
        ),
        (
            &[("timeout", "5"), ("port", "1")],
            "ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config",
        ),
        (
            &[("timeout", "5"), ("nope", "1")],
            "ERR Unknown option or number of arguments for CONFIG SET - 'nope'",
        ),
        (
            &[("timeout", "5"), ("TIMEOUT", "6")],
            "ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
        ),
        (
            &[("maxmemory", "64mb"), ("memory-budget", "64mb")],
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter",
        ),
        (
            &[
                ("timeout", "5"),
                ("proto-max-bulk-len", "1gb"),
                ("client-query-buffer-limit", "2mb"),
            ],
            "ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - an argument",
        ),
        (
            &[("timeout", "5"), ("save", "60 1")],
            "ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable config",
        ),
    ] {
        let error = config.set(pairs, agree).unwrap_err().reply();
        assert!(error.starts_with(reply), "{error}");
        assert_eq!(config.settings(), before);
    }
    let refusal = config.set(&[("timeout", "5")], |_, _, _| Err("device\r\nfull".into()));
    assert!(refusal.unwrap_err().reply().ends_with("'timeout') - device  full"));
    assert_eq!(config.settings(), before);

    let changed = config.set(&[("timeout", "5"), ("maxclients", "10000")], |old, new, names| {
        assert_eq!((old.timeout, new.timeout, names), (0, 5, &["timeout"][..]));
        Ok(())
    });
    assert_eq!(changed.unwrap(), ["timeout"]);
    assert_eq!(config.settings().timeout, 5);
    assert_eq!(config.source("maxclients"), Some(Source::Set));
    config.set(&[("client-output-buffer-limit", "pubsub 1 2 3")], agree).unwrap();
    assert_eq!(
        value(&config, "client-output-buffer-limit"),
        "normal 603979776 134217728 60 slave 0 0 0 pubsub 1 2 3"
    );
}

#[test]
fn rewrite_keeps_comments_order_and_what_flags_said() {
    let text = "# my server\n\ntimeout = 10  # seconds\nmemory-budget = \"64mb\"\n\
                # whom we trust\nprotected-mode = true\n\n[[user]] # reports\nname = \"r\"\n";
    let (_folder, path) = file(text);
    let config = Config::load(Some(&path), [], pairs(&[("maxclients", "5")])).unwrap();
    config.rewrite(no_users).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let set = [
        ("timeout", "20"),
        ("maxmemory", "128mb"),
        ("loglevel", "debug"),
        ("gc-garbage-ratio", "0.5"),
    ];
    config.set(&set, agree).unwrap();
    config
        .set(&[("http-host-names", "a.example b.example"), ("requirepass", "x\"y#z")], agree)
        .unwrap();
    config.rewrite(no_users).unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "# my server\n\ntimeout = 20  # seconds\nmemory-budget = 134217728\n\
         # whom we trust\nprotected-mode = true\ngc-garbage-ratio = 0.5\n\
         http-host-names = [\"a.example\", \"b.example\"]\nloglevel = \"debug\"\n\
         requirepass = 'x\"y#z'\n\n[[user]] # reports\nname = \"r\"\n"
    );
    let again = Config::load(Some(&path), [], pairs(&[("maxclients", "5")])).unwrap();
    assert_eq!(again.settings(), config.settings());
    assert_eq!(config.reload(agree).unwrap(), Reload::default());
}

#[test]
fn every_value_survives_a_rewrite() {
    let (_folder, path) = file("");
    let config = Config::load(Some(&path), [], []).unwrap();
    let live: Vec<_> = all_options().filter(|option| option.when == When::Live).collect();
    let settings = config.settings();
    let shown: Vec<_> = live.iter().map(|o| (o.name, o.show(&settings))).collect();
    let pairs: Vec<_> = shown.iter().map(|(name, text)| (*name, text.as_str())).collect();
    config.set(&pairs, agree).unwrap();
    config.rewrite(no_users).unwrap();
    assert_eq!(*Config::load(Some(&path), [], []).unwrap().settings(), *settings);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), live.len());
}

#[test]
fn a_password_may_be_any_text() {
    let (_folder, path) = file("");
    for password in ["abc\0def", "\0", "a\r\nb", "' \" \u{7f}\u{1}", "tab\tand \\"] {
        let config = Config::load(Some(&path), [], []).unwrap();
        config.set(&[("requirepass", password)], agree).unwrap();
        config.rewrite(no_users).unwrap();
        let again = Config::load(Some(&path), [], []).unwrap();
        assert_eq!(again.settings().requirepass.reveal(), password);
    }
}

#[test]
fn rewrite_needs_a_file_that_is_sound() {
    assert_eq!(Config::default().rewrite(no_users), Err(ConfigError::NoFile));
    let (_folder, path) = file("timeout = 1\n");
    let config = Config::load(Some(&path), [], []).unwrap();
    config.set(&[("timeout", "2")], agree).unwrap();
    fs::write(&path, "timeout = = 1\n").unwrap();
    let error = config.rewrite(no_users).unwrap_err();
    assert!(!error.reply().contains("terrace.toml"), "{}", error.reply());
    assert_eq!(fs::read_to_string(&path).unwrap(), "timeout = = 1\n");
}

#[test]
fn a_file_that_would_be_too_long_to_be_read_is_not_written() {
    let (_folder, path) = file("timeout = 1\n");
    let config = Config::load(Some(&path), [], []).unwrap();
    let long = "h".repeat(4 << 20);
    config.set(&[("http-host-names", long.as_str())], agree).unwrap();
    let refused = config.rewrite(no_users).unwrap_err().to_string();
    assert!(refused.contains("bytes, at most 4194304"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "timeout = 1\n");
    config.set(&[("http-host-names", "h")], agree).unwrap();
    config.rewrite(no_users).unwrap();
    let again = Config::load(Some(&path), [], []).unwrap();
    assert_eq!(value(&again, "http-host-names"), "h");
}

#[test]
fn reload_takes_what_changed_in_the_file() {
    let (_folder, path) = file("timeout = 1\nport = 7\nloglevel = \"debug\"\n");
    let config = Config::load(Some(&path), pairs(&[("TERRACE_MAXCLIENTS", "9")]), []).unwrap();
    config.set(&[("tcp-keepalive", "7")], agree).unwrap();
    assert_eq!(config.reload(agree).unwrap(), Reload::default());

    let text = "timeout = 2\nport = 8\nmaxclients = 10\n[[user]]\nname = \"u\"\n";
    fs::write(&path, text).unwrap();
    let expected = Reload {
        changed: vec!["timeout", "loglevel", "user"],
        refused: vec!["port"],
        overridden: vec!["maxclients"],
    };
    assert_eq!(config.reload(agree).unwrap(), expected);
    let settings = config.settings();
    assert_eq!((settings.timeout, settings.port, settings.maxclients), (2, 7, 9));
    assert_eq!((settings.loglevel, settings.tcp_keepalive), (LogLevel::Notice, 7));
    assert_eq!(config.reload(agree).unwrap().refused, ["port"]);
    fs::write(&path, text.replace("port = 8", "port = 7")).unwrap();
    assert_eq!(config.reload(agree).unwrap(), Reload::default());
}

/// As where files are put in place by the link that leads to them.
#[test]
fn a_link_is_followed_each_time_the_file_is_read_or_written() {
    let (folder, path) = file("timeout = 1\n");
    let (later, link) = (folder.path().join("later.toml"), folder.path().join("link.toml"));
    fs::write(&later, "timeout = 2\n").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let config = Config::load(Some(&link), [], []).unwrap();
    assert_eq!(config.file(), Some(&*link));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&later, &link).unwrap();
    assert_eq!(config.reload(agree).unwrap().changed, ["timeout"]);
    assert_eq!(value(&config, "timeout"), "2");
    config.set(&[("timeout", "3")], agree).unwrap();
    config.rewrite(no_users).unwrap();
    assert_eq!(fs::read_to_string(&later).unwrap(), "timeout = 3\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "timeout = 1\n");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_pipe_is_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let refused = Config::load(Some(&pipe), [], []).unwrap_err().to_string();
    assert!(refused.contains("it is a pipe"), "{refused}");
}

#[test]
fn a_device_is_read_as_far_as_a_file_may_go() {
    Config::load(Some(Path::new("/dev/null")), [], []).unwrap();
    let refused = Config::load(Some(Path::new("/dev/zero")), [], []).unwrap_err().to_string();
    assert!(refused.contains("more than 4194304 bytes"), "{refused}");
}

#[test]
fn reload_of_a_bad_file_changes_nothing() {
    let (_folder, path) = file("timeout = 1\n");
    let config = Config::load(Some(&path), [], []).unwrap();
    let before = config.settings();
    for text in ["timeout = 5\nmaxclients = 0\n", "timeout = 5\nnope = 1\n", "timeout = \n"] {
        fs::write(&path, text).unwrap();
        config.reload(agree).unwrap_err();
        assert_eq!(config.settings(), before);
    }
    fs::write(&path, "timeout = 5\n").unwrap();
    config.reload(|_, _, _| Err("no".into())).unwrap_err();
    assert_eq!(config.settings(), before);
    assert_eq!(config.reload(agree).unwrap().changed, ["timeout"]);
}

#[test]
fn settings_reach_the_engine() {
    let config = flags(&[
        ("maxmemory", "64mb"),
        ("memory-split", "auto"),
        ("appendfsync", "always"),
        ("value-separation-threshold", "off"),
        ("direct-io", "reads"),
        ("learning", "off"),
        ("compaction", "tiered"),
        ("filter", "none"),
        ("rate-limit-bytes", "1mb"),
        ("gc-garbage-ratio", "1"),
        ("background-jobs", "3"),
    ])
    .unwrap();
    let options = config.settings().engine_options();
    assert_eq!(options.memory_budget, 64 << 20);
    assert_eq!(options.advanced.memory_split, terrace::MemorySplit::Auto);
    assert_eq!(options.sync, terrace::SyncMode::Batch);
    assert_eq!(options.default_family.value_separation_threshold, usize::MAX);
    assert_eq!(options.direct_io, terrace::DirectIo { reads: true, writes: false });
    assert_eq!(options.default_family.learning, terrace::Learning::Off);
    assert_eq!(options.default_family.compaction, terrace::CompactionStyle::Tiered);
    assert_eq!(options.default_family.filter, [terrace::FilterPolicy::None]);
    assert_eq!(options.advanced.rate_limit_bytes_per_s, 1 << 20);
    assert_eq!((options.advanced.gc_garbage_ratio, options.background_jobs), (1.0, 3));
}

#[test]
fn documentation_has_every_option_once() {
    let text = documentation();
    for option in all_options() {
        assert_eq!(text.matches(&format!("| `{}`", option.name)).count(), 1, "{}", option.name);
    }
    let columns = |line: &str| line.matches('|').count();
    assert!(text.lines().filter(|l| l.starts_with('|')).all(|l| columns(l) == 6));
}
