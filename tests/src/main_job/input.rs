use std::io::Write;

use super::binary::Run;
use crate::harness::rabbitmq::Vhost;
use crate::world::TestDatabase;

/// Deliveries of a file come out at the archive byte for byte, though some are sent twice and the
/// service is killed on the way; a second run finds them done.
async fn every_payload_arrives_as_it_was_sent<D: TestDatabase>(vhost: Option<Vhost>) {
    let (database, _, _guard) = D::fresh().await;
    let broker = vhost
        .as_ref()
        .map_or_else(|| "database".to_owned(), Vhost::url);
    let file = std::env::temp_dir().join(format!("input-{}", uuid::Uuid::now_v7().simple()));
    let mut lines = std::fs::File::create(&file).expect("a file");
    for n in 0..120 {
        let (id, repository) = (uuid::Uuid::now_v7(), n % 7);
        // Spaces, escapes and a number's rendering that no serializer would make again.
        let payload = format!(
            r#"{{ "n":1.50e1 ,"text":"\u00e9 é \u0000","repository":{{"full_name":"o/r{repository}"}}}}"#
        );
        writeln!(
            lines,
            r#"{{"event":"push","delivery":"{id}","payload":{payload}}}"#
        )
        .expect("a line");
    }
    let input = file.to_string_lossy().into_owned();
    for _ in 0..2 {
        let report = Run::start(&[
            "--input",
            &input,
            "--database",
            &database,
            "--broker",
            &broker,
            "--duplicates",
            "20",
            "--json",
        ])
        .ledger();
        for (name, count) in [
            ("sent", 120),
            ("sent_again", 24),
            ("stored", 120),
            ("archived", 120),
            ("repositories", 7),
            ("lost", 0),
            ("doubled", 0),
            ("altered", 0),
            ("out_of_order", 0),
        ] {
            assert_eq!(report[name], count, "{name}: {report}");
        }
    }
    std::fs::remove_file(&file).expect("it is there");
}

#[actix_rt::test]
async fn on_sqlite_with_the_database_broker() {
    every_payload_arrives_as_it_was_sent::<posta::Sqlite>(None).await;
}

#[actix_rt::test]
async fn on_postgres_with_rabbitmq() {
    let vhost = Vhost::fresh().await;
    every_payload_arrives_as_it_was_sent::<posta::Postgres>(Some(vhost)).await;
}
