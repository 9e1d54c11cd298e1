//! Rules and what follows from them; texts that survive a round trip; attempts to get past.

use super::category::*;
use super::*;
use proptest::prelude::*;

const COMMANDS: [(&str, Categories); 8] = [
    ("get", READ.with(STRING).with(FAST)),
    ("set", WRITE.with(STRING).with(SLOW)),
    ("hget", READ.with(HASH).with(FAST)),
    ("flushdb", WRITE.with(KEYSPACE).with(DANGEROUS)),
    ("config", ADMIN.with(DANGEROUS)),
    ("keys", READ.with(KEYSPACE).with(DANGEROUS)),
    ("acl", ADMIN.with(DANGEROUS)),
    ("ping", CONNECTION.with(FAST)),
];
const GET: u16 = 0;
const SET: u16 = 1;
const FLUSHDB: u16 = 3;
const CONFIG: u16 = 4;
const KEYS: u16 = 5;
const PING: u16 = 7;

fn acl() -> Acl {
    let parts = ["get", "set", "rewrite"].map(|name| ("config", name, ADMIN.with(DANGEROUS)));
    Acl::new(Catalog::new(COMMANDS).with_subcommands(parts))
}

fn with(rules: &str) -> (Acl, Arc<User>) {
    let acl = acl();
    let rules: Vec<_> = rules.split(' ').filter(|rule| !rule.is_empty()).collect();
    acl.set_user(b"u", &rules).unwrap();
    let user = acl.user(b"u").unwrap();
    (acl, user)
}

fn runs(rules: &str) -> Vec<&'static str> {
    let (_, user) = with(rules);
    let numbered = (0..).zip(COMMANDS);
    numbered.filter(|(number, _)| user.may_run(*number, None)).map(|(_, (name, _))| name).collect()
}

#[test]
fn nobody_may_anything_before_rules() {
    let (_, user) = with("");
    assert!(!user.is_on() && !user.may_do_everything());
    assert!((0..100).all(|number| !user.may_run(number, None)));
    assert!(!user.may_access(b"", Access::READ) && !user.may_use_channel(b"x"));
    let everybody = acl().default_login().unwrap();
    assert!(everybody.may_do_everything() && everybody.may_access(b"x", Access::READ_WRITE));
}

#[test]
fn later_rules_about_commands_win() {
    assert_eq!(runs("+@read"), ["get", "hget", "keys"]);
    assert_eq!(runs("+@read -@dangerous"), ["get", "hget"]);
    assert_eq!(runs("+@read -@dangerous +keys -get"), ["hget", "keys"]);
    assert_eq!(runs("-get +@all -flushdb -@admin"), ["get", "set", "hget", "keys", "ping"]);
    assert_eq!(runs("allcommands nocommands +PING"), ["ping"]);
    assert_eq!(runs("+@READ reset +set"), ["set"]);
    assert_eq!(runs("+get -get +get"), ["get"]);
}

#[test]
fn numbers_beyond_the_table_may_never_run() {
    let (_, user) = with("+@all ~*");
    assert!(!user.may_run(64, None) && !user.may_run(u16::MAX, None));
}

#[test]
fn many_commands_have_a_bit_each() {
    let names = (0..200).map(|number| match number {
        0 | 63 | 64 | 199 => ("readers", READ),
        _ => ("writers", WRITE),
    });
    let acl = Acl::new(Catalog::new(names));
    acl.set_user(b"u", &["+@read"]).unwrap();
    let user = acl.user(b"u").unwrap();
    let allowed: Vec<_> = (0..300).filter(|number| user.may_run(*number, None)).collect();
    assert_eq!(allowed, [0, 63, 64, 199]);
}

#[test]
fn subcommands_have_rules_of_their_own() {
    let (acl, user) = with("+config|get +CONFIG|Rewrite");
    assert!(user.may_run(CONFIG, Some(b"GET")) && user.may_run(CONFIG, Some(b"rewrite")));
    assert!(!user.may_run(CONFIG, Some(b"set")) && !user.may_run(CONFIG, None));
    assert!(!user.may_run(CONFIG, Some(&[0xff; 1000])) && !user.may_run(GET, Some(b"get")));
    assert_eq!(user.command_rules(acl.catalog()), "-@all +config|get +config|rewrite");
    let (_, user) = with("+@all -config|set");
    assert!(user.may_run(CONFIG, Some(b"get")) && !user.may_run(CONFIG, Some(b"SeT")));
    assert!(!user.may_do_everything());
    for rules in ["+config|get -config", "+config|get -@admin", "+config|get -@all"] {
        assert!(!with(rules).1.may_run(CONFIG, Some(b"get")), "{rules}");
    }
    let (_, user) = with("-config|set +@admin");
    assert!(user.may_run(CONFIG, Some(b"set")));
}

#[test]
fn keys_need_one_pattern_that_allows_all_of_it() {
    let (acl, user) = with("~both:* %R~read:* %W~write:* %W~x %R~x");
    assert!(user.may_access(b"both:1", Access::READ_WRITE));
    assert!(user.may_access(b"read:1", Access::READ) && !user.may_access(b"read:1", Access::WRITE));
    assert!(user.may_access(b"write:", Access::WRITE) && !user.may_access(b"write:", Access::READ));
    assert!(!user.may_access(b"read:1", Access::READ_WRITE));
    assert!(user.may_access(b"x", Access::READ_WRITE));
    assert!(!user.may_access(b"BOTH:1", Access::READ) && !user.may_access(b"", Access::READ));
    assert_eq!(user.key_rules(), b"~both:* %R~read:* %W~write:* ~x");
    acl.set_user(b"u", &["resetkeys", "%R~*"]).unwrap();
    let user = acl.user(b"u").unwrap();
    assert!(user.may_access(b"any", Access::READ) && !user.may_access(b"any", Access::WRITE));
    // Two patterns that allow a half each do not make a whole.
    let (_, user) = with("%R~a* %W~*b");
    assert!(!user.may_access(b"ab", Access::READ_WRITE));
}

#[test]
fn checks_say_what_is_missing() {
    let (_, user) = with("+get +set ~a*");
    let keys = |keys: &[&'static [u8]]| {
        keys.iter().map(|key| (*key, Access::READ)).collect::<Vec<(&[u8], Access)>>()
    };
    assert_eq!(user.check(GET, None, keys(&[b"a1", b"a2"])), Ok(()));
    assert_eq!(user.check(SET, None, keys(&[b"a1", b"b"])), Err(Denial::Key(b"b".to_vec())));
    assert_eq!(user.check(KEYS, None, keys(&[])), Err(Denial::Command));
    assert_eq!(user.check(PING, None, keys(&[b"b"])), Err(Denial::Command));
    assert_eq!(
        Denial::Command.reply("keys"),
        "NOPERM this user has no permissions to run the 'keys' command"
    );
    assert_eq!(
        Denial::Key(vec![]).reply("get"),
        "NOPERM this user has no permissions to access one of the keys used as arguments"
    );
    assert_eq!(
        Denial::Key(b"b".to_vec()).dry_run("get"),
        "This user has no permissions to access the 'b' key"
    );
    assert_eq!(Denial::Command.logged("keys"), (Reason::Command, &b"keys"[..]));
}

#[test]
fn only_the_right_password_of_a_user_who_is_on_logs_in() {
    let (acl, _) = with("on >one >two");
    assert_eq!(acl.authenticate(b"u", b"one").unwrap().name(), "u");
    acl.authenticate(b"u", b"two").unwrap();
    for (name, password) in [
        (&b"u"[..], &b"three"[..]),
        (b"u", b""),
        (b"nobody", b"one"),
        (b"", b""),
        (b"\xff", b"one"),
        (b"U", b"one"),
    ] {
        let error = acl.authenticate(name, password).unwrap_err();
        assert_eq!(error.reply(), "WRONGPASS invalid username-password pair or user is disabled.");
    }
    acl.set_user(b"u", &["<one"]).unwrap();
    assert!(acl.authenticate(b"u", b"one").is_err());
    acl.set_user(b"u", &["off"]).unwrap();
    assert!(acl.authenticate(b"u", b"two").is_err());
    acl.set_user(b"u", &["on", "nopass"]).unwrap();
    acl.authenticate(b"u", b"whatever").unwrap();
    acl.set_user(b"u", &["resetpass"]).unwrap();
    assert!(acl.authenticate(b"u", b"").is_err());
    // A hash is no password.
    let hash = PasswordHash::of(b"three").to_string();
    acl.set_user(b"u", &[format!("#{hash}")]).unwrap();
    acl.authenticate(b"u", b"three").unwrap();
    assert!(acl.authenticate(b"u", hash.as_bytes()).is_err());
    acl.set_user(b"u", &[format!("!{hash}")]).unwrap();
    assert!(acl.authenticate(b"u", b"three").is_err());
}

#[test]
fn requirepass_is_the_default_users_password() {
    let acl = acl();
    acl.authenticate(b"default", b"anything").unwrap();
    acl.require_password("a b");
    assert!(acl.default_login().is_none());
    acl.authenticate(b"default", b"a b").unwrap();
    assert!(acl.authenticate(b"default", b"").is_err());
    acl.require_password("other");
    assert!(acl.authenticate(b"default", b"a b").is_err());
    assert!(acl.user(b"default").unwrap().may_do_everything());
    acl.require_password("");
    assert!(acl.default_login().is_some());
}

#[test]
fn a_configuration_replaces_all_users_at_once() {
    let (acl, _) = with("on");
    let rules = ["on", ">secret", "+get", "~a*"].map(str::to_string);
    let off = ["off".to_string()];
    acl.configure("pass", [("reports", &rules[..])]).unwrap();
    assert_eq!(acl.names(), ["default", "reports"]);
    assert!(acl.default_login().is_none());
    acl.authenticate(b"default", b"pass").unwrap();
    acl.authenticate(b"reports", b"secret").unwrap();
    let generation = acl.generation();
    let bad = ["on".to_string(), "+nosuch".to_string()];
    let error = acl.configure("", [("reports", &rules[..]), ("other", &bad[..])]).unwrap_err();
    let said = "ERR [[user]] other: Error in ACL SETUSER modifier '+nosuch': ";
    assert!(error.reply().starts_with(said), "{error}");
    // Who starts the server reads it too, and is no client.
    assert_eq!(error.reply(), format!("ERR {error}"));
    assert_eq!((acl.generation(), acl.names().len()), (generation, 2));
    assert!(acl.default_login().is_none());
    acl.configure("", [("default", &off[..])]).unwrap();
    assert!(acl.default_login().is_none() && acl.names() == ["default"]);
    acl.configure("", []).unwrap();
    assert!(acl.default_login().is_some());
}

#[test]
fn nobody_gets_in_while_a_configuration_is_replaced() {
    let (acl, _) = with("on");
    acl.require_password("pass");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0;
            while !stop.load(Ordering::Relaxed) || looks == 0 {
                assert!(acl.default_login().is_none());
                looks += 1;
            }
        });
        for _ in 0..2000 {
            acl.configure("pass", []).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
}

#[test]
fn bad_rules_change_nothing_and_tell_no_password() {
    let (acl, before) = with("on >secret ~a* +get");
    let hash = "0".repeat(63);
    for (rule, part) in [
        ("+nosuch", "modifier '+nosuch': Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command"),
        ("+", "Unknown command"),
        ("+get|", "Syntax error"),
        ("-get|", "Unknown command or category name in ACL"),
        ("+config|", "Syntax error"),
        ("-config|", "Unknown command or category name in ACL"),
        ("+config|a b", "Unknown"),
        ("+get|a b", "Syntax error"),
        ("+nosuch|get", "Unknown"),
        ("hello", "modifier 'hello': Syntax error"),
        ("+get|a|b", "Unknown command or category name in ACL"),
        ("+config|nosuch|x", "Unknown command or category name in ACL"),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("%~a", "Syntax error"),
        ("%X~a", "Syntax error"),
        ("%R", "Syntax error"),
        ("~a b", "Syntax error"),
        ("~a\0", "Syntax error"),
        ("&a\n", "Syntax error"),
        ("<hunter2", "does not exist"),
        ("#hunter2", "exactly 64"),
        (&format!("!{hash}"), "exactly 64"),
        ("(~x +get)", "Selectors"),
    ] {
        let error = acl.set_user(b"u", &["off", "resetkeys", rule]).unwrap_err().reply();
        assert!(error.starts_with("ERR Error in ACL SETUSER modifier '"), "{error}");
        assert!(error.contains(part), "{rule}: {error}");
        assert!(!error.contains('\n') && !error.contains("<hunter2"));
        let now = acl.user(b"u").unwrap();
        assert_eq!(now.line(acl.catalog()), before.line(acl.catalog()));
    }
    assert!(acl.set_user(b"u", &["allkeys", "~a"]).is_err());
    assert!(acl.set_user(b"u", &["&*", "&a"]).is_err());
    for name in [&b"a b"[..], b"a\0", b"a\nuser b", b"\x0b\xff"] {
        assert_eq!(acl.set_user(name, &["on"]), Err(AclError::BadName));
    }
    for name in [&b""[..], b"\xff", b"\x01", b"a\x7f"] {
        assert_eq!(acl.set_user(name, &["on"]), Err(AclError::NameIsNoText));
    }
    assert_eq!(acl.names(), ["default", "u"]);
}

/// Unlike `~*`, which is all keys: nothing may stand behind that.
#[test]
fn a_pattern_for_reads_and_writes_of_any_key_is_a_pattern() {
    for first in [&["%RW~*"][..], &["%R~*", "%W~*"], &["%W~*", "%RW~*"]] {
        let (acl, _) = with("on");
        acl.set_user(b"u", first).unwrap();
        acl.set_user(b"u", &["%R~a*"]).unwrap();
        let user = acl.user(b"u").unwrap();
        assert!(user.may_access(b"b", Access::READ_WRITE), "{first:?}");
        assert_eq!(user.key_rules(), b"%RW~* %R~a*", "{first:?}");
        acl.set_user(b"u", &["~*"]).unwrap();
        assert_eq!(acl.user(b"u").unwrap().key_rules(), b"~*");
        assert!(acl.set_user(b"u", &["%RW~*"]).is_err(), "behind all keys");
    }
}

#[test]
fn what_was_said_of_payloads_is_among_the_flags() {
    let (acl, user) = with("on");
    assert_eq!(user.flags(), ["on"]);
    for (rule, flags) in [
        ("sanitize-payload", &["on", "sanitize-payload"][..]),
        ("SKIP-sanitize-payload", &["on", "skip-sanitize-payload"]),
        ("nopass", &["on", "nopass", "skip-sanitize-payload"]),
        ("reset", &["off"]),
    ] {
        acl.set_user(b"u", &[rule]).unwrap();
        assert_eq!(acl.user(b"u").unwrap().flags(), flags, "{rule}");
    }
}

#[test]
fn users_are_told_as_redis_tells_them() {
    let (acl, _) = with("on &news:* &x");
    acl.set_user(b"u", &["", "+get"]).unwrap();
    let line = "user u on resetchannels &news:* &x -@all +get";
    assert_eq!(acl.list()[1], line.as_bytes());
    assert_eq!(acl.user(b"u").unwrap().channel_rules(), b"&news:* &x");
    let (acl, user) = with("on >p ~a:* +@read -keys");
    let hash = PasswordHash::of(b"p");
    assert_eq!(user.flags(), ["on"]);
    assert_eq!(user.password_hashes(), [hash.to_string()]);
    assert_eq!(user.command_rules(acl.catalog()), "-@all +@read -keys");
    let expected = [
        "user default on nopass ~* &* +@all".to_string(),
        format!("user u on #{hash} ~a:* resetchannels -@all +@read -keys"),
    ];
    assert_eq!(acl.list(), expected.map(String::into_bytes));
    let dangerous = acl.commands_in("dangerous").unwrap();
    let (whole, parts) = dangerous.split_at(4);
    assert_eq!(whole, ["flushdb", "config", "keys", "acl"]);
    assert_eq!(parts, ["config|get", "config|set", "config|rewrite"]);
    assert!(acl.commands_in("nosuch").is_err());
    assert!(
        with("+@all -flushdb").1.may_run(GET, None)
            && !with("+@all -flushdb").1.may_run(FLUSHDB, None)
    );
}

#[test]
fn deleted_and_changed_users_are_noticed() {
    let (acl, mut user) = with("on +get");
    let mut seen = acl.generation();
    assert!(acl.refresh(&mut user, &mut seen));
    acl.set_user(b"u", &["-get"]).unwrap();
    assert!(user.may_run(GET, None));
    assert!(acl.refresh(&mut user, &mut seen) && !user.may_run(GET, None));
    assert_eq!(acl.delete_users(&["default", "u"]), Err(AclError::DefaultStays));
    assert!(acl.refresh(&mut user, &mut seen));
    assert_eq!(acl.delete_users(&["u", "nobody", "u"]), Ok(1));
    assert!(!acl.refresh(&mut user, &mut seen));
}

#[test]
fn a_text_replaces_all_users_or_none() {
    let (acl, _) = with("on");
    let text = b"# users\n\nuser alice on nopass ~* +@all\r\nuser default off\n";
    acl.load(text).unwrap();
    assert_eq!(acl.names(), ["alice", "default"]);
    assert!(acl.default_login().is_none());
    for (text, line) in [
        ("user a on\nuser b +nosuch", 2),
        ("hello\n", 1),
        ("\nuser", 2),
        ("user a\nuser a", 2),
        ("user \u{1}", 1),
    ] {
        let refused = acl.load(text.as_bytes()).unwrap_err();
        // With its code once, also if a rule of the line is what is wrong.
        assert_eq!(refused.reply().matches("ERR ").count(), 1, "{refused}");
        match refused {
            AclError::Line { line: at, .. } => assert_eq!(at, line, "{text}"),
            error => panic!("{error}"),
        }
        assert_eq!(acl.names(), ["alice", "default"]);
    }
    acl.load(b"").unwrap();
    assert!(acl.default_login().is_some() && acl.names() == ["default"]);
}

#[test]
fn files_survive_and_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    let (acl, _) = with("on >p %R~a* &c +@read +config|get");
    acl.save_file(&path).unwrap();
    let other = self::acl();
    other.load_file(&path).unwrap();
    assert_eq!(other.list(), acl.list());
    assert!(!std::fs::read(&path).unwrap().windows(2).any(|pair| pair == b">p"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(acl.load_file(&folder.path().join("nosuch")).is_err());
    let endless = acl.load_file(std::path::Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(endless.contains("too long"), "{endless}");
}

/// One rule, mostly sound.
fn any_rule() -> impl Strategy<Value = String> {
    let words = "on off nopass resetpass allkeys resetkeys allchannels resetchannels reset \
                 allcommands nocommands +@all -@all >a >b <a ~a* ~* %R~a* %W~a* %RW~b %R~* %W~* %RW~* sanitize-payload &c* &* \
                 +get -get +@read -@read +@dangerous -@dangerous +config|get -config|set +config \
                 -config +acl|list -@fast +ping";
    let words: Vec<_> = words.split_whitespace().map(str::to_string).collect();
    prop::sample::select(words)
}

/// Whether a user may do each of many things.
fn abilities(user: &User) -> Vec<bool> {
    let arguments = [None, Some(&b"get"[..]), Some(b"set"), Some(b"list")];
    let commands = (0..10).flat_map(|n| arguments.map(|argument| user.may_run(n, argument)));
    let keys = [&b"a1"[..], b"b", b"", b"zz"].into_iter().flat_map(|key| {
        let all = [Access::READ, Access::WRITE, Access::READ_WRITE];
        all.map(|access| user.may_access(key, access))
    });
    let channels = [&b"c1"[..], b"d"].map(|channel| user.may_use_channel(channel));
    commands.chain(keys).chain(channels).collect()
}

proptest! {
    #[test]
    fn any_user_survives_its_own_text(rules in proptest::collection::vec(any_rule(), 0..20)) {
        let acl = acl();
        for rule in &rules {
            drop(acl.set_user(b"u", &[rule]));
        }
        prop_assume!(acl.user(b"u").is_some());
        let user = acl.user(b"u").unwrap();
        let other = self::acl();
        other.load(&acl.text()).unwrap();
        prop_assert_eq!(other.list(), acl.list());
        let again = other.user(b"u").unwrap();
        prop_assert_eq!(abilities(&again), abilities(&user));
        prop_assert_eq!(again.is_on(), user.is_on());
        prop_assert_eq!(again.may_do_everything(), user.may_do_everything());
        if user.may_do_everything() {
            prop_assert!(COMMANDS.iter().enumerate().all(|(n, _)| user.may_run(n as u16, None)));
        }
    }

    #[test]
    fn any_bytes_are_a_rule_or_an_error(rule: Vec<u8>, name: Vec<u8>, text: Vec<u8>) {
        let acl = acl();
        drop(acl.set_user(&name, &[rule]));
        drop(acl.load(&text));
        prop_assert!(acl.user(b"default").is_some());
    }
}

#[test]
fn a_rule_about_a_category_takes_the_place_of_earlier_ones_about_what_is_in_it() {
    let catalog = Catalog::new([
        ("config", SLOW),
        ("get", READ.with(STRING).with(FAST)),
        ("set", WRITE.with(STRING).with(SLOW)),
    ])
    .with_subcommands([("config", "get", ADMIN), ("config", "help", SLOW)]);
    let acl = Acl::new(catalog);
    for (rules, left) in [
        ("+config|get -@admin", "-@all"),
        ("+config|help -@admin", "-@all +config|help -@admin"),
        ("+config +config|get -@admin", "-@all +config -@admin"),
        ("+config -@slow -@admin", "-@all +config -@slow -@admin"),
        ("+get|x -@read", "-@all"),
        ("+get +set -@write", "-@all +get -@write"),
        ("+set +set|x -set", "-@all"),
    ] {
        let words: Vec<&str> = rules.split(' ').collect();
        acl.set_user(b"u", &[&["reset"][..], &words].concat()).unwrap();
        let user = acl.user(b"u").unwrap();
        assert_eq!(user.command_rules(acl.catalog()), left, "{rules}");
        assert!(!user.may_run(0, Some(b"get")), "{rules}");
    }
    for wrong in ["+config|nosuch", "-config|nosuch", "+config|get|x", "-get|x", "+nosuch|x"] {
        assert!(acl.set_user(b"u", &[wrong]).is_err(), "{wrong}");
    }
}
