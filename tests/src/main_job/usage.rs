use std::process::Output;

use super::binary::Run;
use crate::world::TestDatabase;

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Run::start(arguments).end();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_wrong_flag_is_refused_with_words_and_exit_code_2() {
    for (arguments, words) in [
        (&["--documents", "0"][..], "--documents"),
        (&["--duplicates", "101"], "--duplicates"),
        (&["--keys", "many"], "--keys"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--broker", "kafka://localhost"], "kafka"),
        (
            &["--database", "mysql://someone:s3cret@localhost/x"],
            "mysql",
        ),
        (&["--database", "postgres:///x?sslmode=maybe"], "sslmode"),
    ] {
        let (code, stderr) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("s3cret"), "{stderr}");
    }
}

#[test]
fn a_database_that_is_not_there_is_named_and_its_password_is_not() {
    let (code, stderr) = run(&[
        "--database",
        "postgres://someone:s3cret@127.0.0.1:1/nowhere",
    ]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("database"), "{stderr}");
    assert!(!stderr.contains("s3cret"), "{stderr}");
    let (code, stderr) = run(&["--database", "/no/such/folder/a.db"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("/no/such/folder"), "{stderr}");
}

#[actix_rt::test]
async fn a_run_with_other_flags_is_not_taken_for_the_same() {
    let (database, _, _guard) = posta::Sqlite::fresh().await;
    Run::start(&["--database", &database, "--documents", "20", "--json"]).ledger();
    for other in [
        ["--keys", "7"],
        ["--duplicates", "6"],
        ["--documents", "19"],
    ] {
        let mut arguments = vec!["--database", &database];
        if other[0] != "--documents" {
            arguments.extend(["--documents", "20"]);
        }
        arguments.extend(other);
        let (code, stderr) = run(&arguments);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(other[0]), "{stderr}");
    }
}
