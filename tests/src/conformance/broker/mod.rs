//! What every broker must do, whatever it is made of. A broker joins by one line at the end of this
//! file.
//!
//! The suite plays dispatcher and partition actor in one: it publishes as the broker's capabilities
//! ask for, outside the database in waves or inside the settling transaction, and acknowledges both
//! within and after the handling transaction.

mod acknowledging;
mod bench;
mod publishing;
mod receiving;
mod under_test;

pub(crate) use under_test::BrokerUnderTest;

/// Runs the suite on a broker.
macro_rules! conforms {
    ($name:ident, $broker:ty) => {
        conforms!(@ $name, $broker,
            publishing::confirmed_messages_are_delivered_to_every_consumer_of_their_type,
            publishing::payload_bytes_arrive_as_they_were_sent,
            publishing::every_field_of_an_envelope_arrives,
            publishing::an_unroutable_message_is_returned_and_its_neighbours_are_confirmed,
            publishing::each_message_goes_to_the_partition_of_its_slot,
            publishing::declaring_again_changes_nothing_and_can_add_types,
            receiving::messages_of_a_key_arrive_in_the_order_of_publishing,
            receiving::no_more_than_the_limit_and_no_waiting_for_more,
            receiving::a_cancelled_receive_loses_nothing,
            receiving::no_more_is_unacknowledged_than_the_prefetch,
            receiving::a_queue_has_one_active_subscription,
            acknowledging::what_is_acknowledged_does_not_come_back,
            acknowledging::what_is_not_acknowledged_comes_back_at_its_old_place,
            acknowledging::acknowledging_some_takes_no_others_along,
        );
    };
    (@ $name:ident, $broker:ty, $($module:ident::$test:ident),+ $(,)?) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$module::$test::<$broker>().await;
                }
            )+
        }
    };
}

conforms!(rabbitmq, super::under_test::RabbitMqUnderTest);
conforms!(
    database_in_sqlite,
    super::under_test::DatabaseUnderTest<posta::Sqlite>
);
conforms!(
    database_in_postgres,
    super::under_test::DatabaseUnderTest<posta::Postgres>
);
