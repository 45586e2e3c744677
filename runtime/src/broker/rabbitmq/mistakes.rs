use std::time::Duration;

use super::RabbitMqOptions;

/// Every value of the options that cannot be used, with its limit and the reason.
pub(super) fn find(options: &RabbitMqOptions) -> Vec<String> {
    let mut mistakes = Vec::new();
    let mut require = |holds: bool, mistake: String| {
        if !holds {
            mistakes.push(mistake);
        }
    };
    type Limits = RabbitMqOptions;

    let heartbeat = options.heartbeat;
    require(
        (Limits::HEARTBEAT_MIN..=Limits::HEARTBEAT_MAX).contains(&heartbeat)
            && heartbeat.subsec_nanos() == 0,
        format!(
            "heartbeat is {heartbeat:?}: it must be whole seconds from {:?} to {:?}, or a dead connection stays unnoticed",
            Limits::HEARTBEAT_MIN,
            Limits::HEARTBEAT_MAX
        ),
    );
    for (name, timeout) in [
        ("connect_timeout", options.connect_timeout),
        ("answer_timeout", options.answer_timeout),
        ("publish_timeout", options.publish_timeout),
    ] {
        require(
            timeout > Duration::ZERO,
            format!("{name} is 0: nothing could ever be in time"),
        );
    }
    require(
        options.prefetch > 0,
        "prefetch is 0: RabbitMQ takes it for \"no limit\" and would send a whole queue into memory; it must be 1 to 65535"
            .to_owned(),
    );
    require(
        options.delivery_limit > 0 && options.delivery_limit <= i32::MAX as u32,
        format!(
            "delivery_limit is {}: it must be 1 to {}, since RabbitMQ keeps a signed number",
            options.delivery_limit,
            i32::MAX
        ),
    );
    require(
        (1..=Limits::MESSAGE_BYTES_MAX).contains(&options.message_bytes_max),
        format!(
            "message_bytes_max is {}: it must be 1 to {}, RabbitMQ's own upper limit",
            options.message_bytes_max,
            Limits::MESSAGE_BYTES_MAX
        ),
    );
    require(
        options.frame_bytes_max >= Limits::FRAME_BYTES_MIN,
        format!(
            "frame_max is {}: AMQP does not allow less than {} bytes",
            options.frame_bytes_max,
            Limits::FRAME_BYTES_MIN
        ),
    );
    let exchange = options.exchange.len();
    require(
        (1..=Limits::EXCHANGE_BYTES_MAX).contains(&exchange),
        format!(
            "the exchange's name has {exchange} bytes: it must have 1 to {}, so that it fits into an AMQP short string with {:?} added",
            Limits::EXCHANGE_BYTES_MAX,
            super::DEAD
        ),
    );
    require(
        !options.exchange.starts_with("amq."),
        "the exchange's name begins with \"amq.\", which RabbitMQ keeps for its own".to_owned(),
    );
    for (name, text) in [
        ("app_id", options.app_id.as_deref().unwrap_or_default()),
        ("the virtual host", options.vhost.as_str()),
    ] {
        require(
            text.len() <= 255,
            format!(
                "{name} has {} bytes: an AMQP short string holds 255",
                text.len()
            ),
        );
    }
    require(
        options.ca_file.is_none() || options.tls,
        "ca_file is given, but the URL's scheme is amqp: nothing would be encrypted; use amqps"
            .to_owned(),
    );

    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_reported_at_once() {
        let options = RabbitMqOptions::from_url("amqp://localhost")
            .unwrap()
            .prefetch(0)
            .heartbeat(Duration::from_millis(1500))
            .publish_timeout(Duration::ZERO)
            .delivery_limit(0)
            .ca_file("ca.pem")
            .exchange("");
        let mistakes = find(&options);
        assert_eq!(mistakes.len(), 6);
        let text = mistakes.join("; ");
        for part in [
            "prefetch is 0",
            "heartbeat is 1.5s",
            "publish_timeout",
            "delivery_limit",
            "ca_file",
            "exchange",
        ] {
            assert!(text.contains(part), "{part} is not in {text:?}");
        }
    }

    #[test]
    fn the_defaults_pass() {
        let options = RabbitMqOptions::from_url("amqps://localhost").unwrap();
        assert_eq!(find(&options), Vec::<String>::new());
    }
}
