"""Encrypted stores, with their backups and sorted files: with the keys, with others, and without."""

import pytest

import terracedb

SECRET = b"nobody-reads-this"


def key_file(path, number=1, digits="0123456789abcdef"):
    path.write_text(f"{number} {digits * 4}\n")
    return path


@pytest.fixture
def keys(tmp_path):
    return key_file(tmp_path / "keys")


@pytest.fixture
def others(tmp_path):
    return key_file(tmp_path / "others", digits="fedcba9876543210")


@pytest.fixture
def db(tmp_path, keys):
    with terracedb.Db(tmp_path / "store", memory_budget="16MiB", encryption_key_file=keys) as db:
        db[SECRET] = SECRET
        yield db


def is_readable(path):
    return any(SECRET in file.read_bytes() for file in path.rglob("*") if file.is_file())


def test_encrypted_backups_come_back_encrypted(db, tmp_path, keys):
    with terracedb.Backups(tmp_path / "backups", encryption_key_file=str(keys)) as backups:
        one = backups.create(db)
        backups.verify(one.id)
        backups.restore(one.id, tmp_path / "copy")
    db.close()
    for name in ("store", "backups", "copy"):
        assert not is_readable(tmp_path / name)
    with terracedb.Db(tmp_path / "copy", encryption_key_file=keys) as copy:
        assert dict(copy.items()) == {SECRET: SECRET}
    with pytest.raises(terracedb.UnsupportedError, match="it is encrypted: open the store with its keys"):
        terracedb.Db(tmp_path / "copy", encryption_key_file=None)


def test_backups_without_their_keys_are_refused(db, tmp_path, keys, others):
    with terracedb.Backups(tmp_path / "backups", encryption_key_file=keys) as backups:
        one = backups.create(db)
    missing = key_file(tmp_path / "missing", number=2)
    for given, why in (
        (None, "it is encrypted: open the backups with their keys"),
        (others, "another key 1 than the one given"),
        (missing, "key 1, which is not among the keys given"),
    ):
        with terracedb.Backups(tmp_path / "backups", encryption_key_file=given) as backups:
            (listed,) = backups.list()
            assert listed.id == one.id and why in listed.damage
            calls = [lambda: backups.verify(1), lambda: backups.restore(1, tmp_path / "no"), lambda: backups.keep_latest(1)]
            for call in calls:
                with pytest.raises(terracedb.UnsupportedError, match=why):
                    call()
    assert not (tmp_path / "no").exists()


def test_backups_in_the_clear_and_encrypted_ones_do_not_mix(db, tmp_path, keys):
    with terracedb.Backups(tmp_path / "clear") as backups:
        with pytest.raises(terracedb.InvalidArgumentError, match="the store is encrypted and its backups would not be"):
            backups.create(db)
        with terracedb.Db(tmp_path / "plain") as plain:
            backups.create(plain)
    with terracedb.Backups(tmp_path / "clear", encryption_key_file=keys) as backups:
        with pytest.raises(terracedb.UnsupportedError, match="it is not encrypted: open the backups without keys"):
            backups.create(db)
    with terracedb.Backups(tmp_path / "clear") as backups:
        backups.verify(1)


def test_sorted_files_have_the_keys_of_their_store(db, tmp_path, keys, others):
    def written(name, **options):
        with terracedb.SstWriter(tmp_path / name, **options) as writer:
            writer[b"sorted" + SECRET] = SECRET
        return tmp_path / name

    clear = written("clear.sst", encryption_key_file=None, compression="none")
    encrypted = written("encrypted.sst", encryption_key_file=keys, compression="none")
    assert SECRET in clear.read_bytes() and SECRET not in encrypted.read_bytes()
    for path, why in (
        (clear, "it is not encrypted: write it with the keys of the store"),
        (written("other.sst", encryption_key_file=others), "another key 1 than the one given"),
    ):
        with pytest.raises(terracedb.UnsupportedError, match=why):
            db.ingest([path])
    assert db.ingest([encrypted], move=True) == 1 and db[b"sorted" + SECRET] == SECRET
    with terracedb.Db(tmp_path / "plain") as plain:
        with pytest.raises(terracedb.UnsupportedError, match="it is encrypted"):
            plain.ingest([written("again.sst", encryption_key_file=keys)])


def test_a_repair_of_an_encrypted_store_wants_its_keys(db, tmp_path, keys, others):
    db.close()
    for given, why in (
        (None, "it is encrypted: open the store with its keys"),
        (others, "another key 1 than the one given"),
    ):
        for from_lost in (False, True):
            with pytest.raises(terracedb.UnsupportedError, match=why):
                terracedb.repair(tmp_path / "store", from_lost=from_lost, encryption_key_file=given)
    for dry_run in (True, False):
        report = terracedb.repair(tmp_path / "store", dry_run=dry_run, encryption_key_file=str(keys))
        assert report["was_sound"] and not report["lost"]
    with terracedb.Db(tmp_path / "store", encryption_key_file=keys) as repaired:
        assert dict(repaired.items()) == {SECRET: SECRET}
    assert not is_readable(tmp_path / "store")


def test_what_is_no_key_file_is_refused_before_anything_is_made(tmp_path):
    (tmp_path / "bad").write_text("1 abc\n")
    for make in (terracedb.Backups, terracedb.SstWriter, terracedb.Db, terracedb.repair):
        for file, why in (("bad", "line 1 of the keys"), ("nowhere", "nowhere: ")):
            with pytest.raises(terracedb.InvalidArgumentError, match="encryption_key_file: .*" + why):
                make(tmp_path / "made", encryption_key_file=tmp_path / file)
            assert not (tmp_path / "made").exists()
