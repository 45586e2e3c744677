//! What an operator does, on real databases: through the library, and through the command line as
//! it is run by hand.
//!
//! Letters come from a handler with a bug where that matters ([`bug`]), and are written through the
//! store where there are thousands of them ([`given`]).

mod bug;
mod cli;
mod crash;
mod dry_run;
mod edit;
mod end;
mod given;
mod look;
mod order;
mod rate;
mod recall;
mod redispatch;
mod replay;
mod runs;

/// Instantiates generic tests `async fn name<D: TestDatabase>()` on both databases.
macro_rules! on_both_databases {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[actix_rt::test]
            async fn $name() {
                super::$name::<posta::Sqlite>().await;
            })+
        }
        mod postgres {
            $(#[actix_rt::test]
            async fn $name() {
                super::$name::<posta::Postgres>().await;
            })+
        }
    };
}

use on_both_databases;
