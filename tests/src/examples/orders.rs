use std::path::Path;

use super::program::{Program, command};
use crate::harness::postgres;
use crate::harness::rabbitmq::Vhost;
use crate::harness::sqlite::SqliteFile;

/// The three parties' databases.
struct Databases {
    shop: String,
    inventory: String,
    billing: String,
}

#[actix_rt::test]
async fn each_order_is_reserved_and_invoiced_once_and_in_order_on_sqlite() {
    let (folder, vhost) = (SqliteFile::absent(), Vhost::fresh().await);
    let file = |name: &str| format!("sqlite://{}", folder.directory().join(name).display());
    let [shop, inventory, billing] = ["shop.db", "inventory.db", "billing.db"].map(file);
    settles(
        &Databases {
            shop,
            inventory,
            billing,
        },
        &vhost,
        folder.directory(),
    )
    .await;
}

/// The inventory, where orders contend for the same rows, is on PostgreSQL here, and the shop;
/// nobody sees what the others are on.
#[actix_rt::test]
async fn each_order_is_reserved_and_invoiced_once_and_in_order_on_different_databases() {
    let (folder, vhost) = (SqliteFile::absent(), Vhost::fresh().await);
    let ((_, _, shop), (_, _, inventory)) = (postgres::fresh().await, postgres::fresh().await);
    let databases = Databases {
        shop: shop.url(),
        inventory: inventory.url(),
        billing: folder.url(),
    };
    settles(&databases, &vhost, folder.directory()).await;
}

/// Places orders while inventory and shop are killed in turn, and sums up.
async fn settles(databases: &Databases, vhost: &Vhost, folder: &Path) {
    let start = |party: &'static str, database: &str| {
        let mut program = Program::start("orders", folder, |command| {
            // One order after another finds some shelf empty.
            let stock: &[&str] = if party == "inventory" {
                &["--stock", "12"]
            } else {
                &[]
            };
            command
                .args([party, "--database", database, "--lease", "1"])
                .args(stock);
            command.env("ORDERS_BROKER", vhost.url());
        });
        program.line_with("runs");
        program
    };
    let inventory = start("inventory", &databases.inventory);
    let billing = start("billing", &databases.billing);
    // An order before this would never be heard of by who is not there yet.
    for party in ["inventory", "billing"] {
        vhost
            .queue_until(&format!("{party}.1.0"), |queue| queue["consumers"] == 1)
            .await;
    }
    let shop = start("shop", &databases.shop);
    place(databases, folder);
    inventory.kill();
    place(databases, folder);
    let inventory = start("inventory", &databases.inventory);
    place(databases, folder);
    shop.kill();
    let shop = start("shop", &databases.shop);
    let mut report = command("orders");
    report.args(["report", "--patience", "60", "--shop", &databases.shop]);
    report.args([
        "--inventory",
        &databases.inventory,
        "--billing",
        &databases.billing,
    ]);
    let report = actix_rt::task::spawn_blocking(move || report.output()).await;
    let report = report.expect("no panic").expect("the report can be made");
    let ledger = String::from_utf8_lossy(&report.stdout);
    assert!(
        report.status.success(),
        "\n{ledger}\n{}",
        String::from_utf8_lossy(&report.stderr)
    );
    for (line, count) in [
        ("orders", 60),
        ("changes", 57),
        ("cancelled", 6),
        ("invoiced", 54),
    ] {
        assert_eq!(number(&ledger, line), count, "{line}\n{ledger}");
    }
    assert!(
        number(&ledger, "short") > 0,
        "the shelves are small\n{ledger}"
    );
    for party in [shop, inventory, billing] {
        party.terminate();
    }
}

/// Twenty orders, each changed up to twice, the tenth and the twentieth cancelled.
fn place(databases: &Databases, folder: &Path) {
    let mut place = command("orders");
    place.args([
        "place",
        "--count",
        "20",
        "--changes",
        "2",
        "--database",
        &databases.shop,
    ]);
    let placed = place
        .current_dir(folder)
        .output()
        .expect("orders can be placed");
    assert!(
        placed.status.success(),
        "{}",
        String::from_utf8_lossy(&placed.stderr)
    );
}

fn number(ledger: &str, name: &str) -> i64 {
    let mut lines = ledger.lines().map(str::split_whitespace);
    let line = lines.find(|line| line.clone().next() == Some(name));
    let number = line
        .and_then(|mut line| line.nth(1))
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no line {name:?} in\n{ledger}"))
}

#[test]
fn without_a_broker_between_them_no_party_starts() {
    let folder = SqliteFile::absent();
    let mut shop = command("orders");
    shop.args(["shop", "--broker", "database"])
        .current_dir(folder.directory());
    let shop = shop.output().expect("an example can be run");
    assert!(!shop.status.success());
    let said = String::from_utf8_lossy(&shop.stderr);
    assert!(said.contains("need a broker between them"), "{said}");
}
