use std::path::PathBuf;

use super::child::{self, FOREIGN, HANDLED, MALFORMED, Role, UNRECORDED};
use super::exported::{self, Span};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

/// What the two processes have exported.
struct Exported {
    system: &'static str,
    is_rabbitmq: bool,
    sent: Vec<Span>,
    received: Vec<Span>,
}

impl Exported {
    async fn by<D: TestDatabase>(broker: BrokerKind) -> Self {
        let world = World::<D>::fresh(broker).await;
        let folder = Folder::new();
        let file = |role: Role| folder.0.join(format!("{role:?}"));
        for role in [Role::Declare, Role::Send, Role::Receive] {
            let path = file(role);
            child::run(&world, role, &path);
        }
        Self {
            system: child::system::<D>(broker),
            is_rabbitmq: broker == BrokerKind::RabbitMq,
            sent: exported::read(&file(Role::Send)),
            received: exported::read(&file(Role::Receive)),
        }
    }

    /// The span of the request in which the sender enqueued.
    fn request(&self, name: &str) -> &Span {
        one(self
            .sent
            .iter()
            .filter(|span| span.name == "request" && span.attribute("name") == name))
    }

    /// The handler's calls for a key, in order.
    fn processed(&self, key: &str) -> Vec<&Span> {
        let is_of_key = |span: &&Span| {
            span.events
                .iter()
                .any(|event| event.get("key").is_some_and(|text| text == key))
        };
        operations(&self.received, "process")
            .filter(is_of_key)
            .collect()
    }

    /// The handler's call for a key that lasted: earlier ones shared a transaction with a call that
    /// failed.
    fn committed(&self, key: &str) -> &Span {
        self.processed(key).pop().expect("a call")
    }

    /// The last span that sent what another one created: a message can be published more than once
    /// (N1), if its settling does not come through, and each time says so in a span of its own.
    fn send_of<'a>(&self, spans: &'a [Span], create: &Span) -> &'a Span {
        operations(spans, "send")
            .filter(|span| span.links.contains(&create.as_link()))
            .last()
            .expect("a send span")
    }

    /// What the convention says of names, on this broker.
    fn destination(&self, message_type: &str) -> String {
        match self.is_rabbitmq {
            true => format!("posta:{message_type}.{{slot}}"),
            false => message_type.to_owned(),
        }
    }

    fn source(&self, message_type: &str) -> String {
        match self.is_rabbitmq {
            true => format!("posta:{message_type}.{{slot}}:notes.{{layout}}.{{partition}}"),
            false => format!("{message_type}:notes"),
        }
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("posta-test-{}", uuid::Uuid::now_v7().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("the temporary directory can be written");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn operations<'a>(spans: &'a [Span], operation: &str) -> impl Iterator<Item = &'a Span> {
    spans
        .iter()
        .filter(move |span| span.attribute("messaging.operation.name") == operation)
}

fn one<'a>(mut spans: impl Iterator<Item = &'a Span>) -> &'a Span {
    let span = spans.next().expect("a span");
    assert!(spans.next().is_none(), "more than one span like {span:#?}");
    span
}

fn children<'a>(spans: &'a [Span], parent: &Span) -> Vec<&'a Span> {
    spans
        .iter()
        .filter(|span| span.is_child_of(parent))
        .collect()
}

/// G9: one trace goes from the request through create, send and process in another process, and on
/// through what the handler enqueued.
async fn one_trace_connects_two_processes<D: TestDatabase>(broker: BrokerKind) {
    let exported = Exported::by::<D>(broker).await;
    a_message_is_followed_to_its_answer(&exported);
    a_scheduled_message_keeps_its_trace(&exported);
    a_transaction_is_sent_in_one_span(&exported);
    a_failed_try_is_followed_by_a_good_one(&exported);
    foreign_contexts_are_kept(&exported);
    what_no_queue_takes_says_so(&exported);
    names_kinds_and_attributes_are_the_conventions(&exported);
}

fn a_message_is_followed_to_its_answer(exported: &Exported) {
    let request = exported.request("journey");
    assert!(request.is_root());
    let create = one(children(&exported.sent, request).into_iter());
    let send = exported.send_of(&exported.sent, create);
    assert!(send.is_child_of(create), "{send:#?}");
    let process = exported.committed("journey");
    assert!(
        process.is_child_of(create) && process.parent_is_remote,
        "{process:#?}"
    );
    assert_eq!(process.links, [create.as_link()]);
    assert!(process.events[0]["traceparent"].contains(&create.span_id));
    let answer = one(children(&exported.received, process).into_iter());
    assert_eq!(answer.attribute("messaging.operation.name"), "create");
    let send = exported.send_of(&exported.received, answer);
    assert!(send.is_child_of(answer), "{send:#?}");
    let handled = operations(&exported.received, "process").filter(|span| span.is_child_of(answer));
    assert_eq!(one(handled).trace_id, request.trace_id);
    let cause = process.attribute("messaging.message.id");
    assert_eq!(answer.attribute("messaging.message.conversation_id"), cause);
}

fn a_scheduled_message_keeps_its_trace(exported: &Exported) {
    let request = exported.request("later");
    let create = one(children(&exported.sent, request).into_iter());
    let send = exported.send_of(&exported.sent, create);
    assert!(send.is_child_of(create), "{send:#?}");
    let process = exported.committed("later");
    assert!(process.is_child_of(create), "{process:#?}");
    assert_eq!(process.links, [create.as_link()]);
}

fn a_transaction_is_sent_in_one_span(exported: &Exported) {
    let creates = children(&exported.sent, exported.request("batch"));
    assert_eq!(creates.len(), 3);
    let send = exported.send_of(&exported.sent, creates[0]);
    assert!(send.is_child_of(creates[0]));
    let links: Vec<_> = creates.iter().map(|create| create.as_link()).collect();
    assert_eq!(send.links, links);
    assert_eq!(send.attribute("messaging.batch.message_count"), "3");
    assert_eq!(send.attribute("messaging.message.id"), "");
    for (key, create) in ["first", "second", "third"].into_iter().zip(creates) {
        for process in exported.processed(key) {
            assert!(process.is_child_of(create));
            assert_eq!(process.links, [create.as_link()]);
        }
    }
}

fn a_failed_try_is_followed_by_a_good_one(exported: &Exported) {
    for (key, error_type, text) in [
        ("fails", "handler_failed", "told to fail"),
        ("panics", "handler_panicked", "told to panic"),
    ] {
        let tries = exported.processed(key);
        let create = one(children(&exported.sent, exported.request(key)).into_iter());
        assert!(tries.iter().all(|process| process.is_child_of(create)));
        let (good, failed) = tries.split_last().expect("tries");
        assert!(!failed.is_empty());
        for failed in failed {
            assert_eq!(failed.attribute("error.type"), error_type);
            assert!(failed.status.contains(text), "{}", failed.status);
            assert_eq!(failed.attribute("posta.attempt"), "1");
        }
        assert_eq!(good.attribute("posta.attempt"), "2");
        assert_eq!(
            (good.attribute("error.type"), good.status.as_str()),
            ("", "Unset")
        );
        assert_eq!(good.attribute("posta.rolled_back"), "");
    }
    // Whatever shared a batch with them ran again, and its first call says that it was undone.
    for key in ["first", "second", "third", "journey"] {
        let (good, undone) = exported
            .processed(key)
            .split_last()
            .map(|(g, u)| (*g, u.to_vec()))
            .expect("a call");
        assert_eq!(good.attribute("posta.rolled_back"), "");
        assert!(
            undone
                .iter()
                .all(|call| call.attribute("posta.rolled_back") == "true")
        );
    }
}

fn foreign_contexts_are_kept(exported: &Exported) {
    let foreign = exported.committed(FOREIGN);
    assert!(FOREIGN.contains(&foreign.trace_id) && FOREIGN.contains(&foreign.parent_span_id));
    assert_eq!(foreign.tracestate, "vendor=1");
    assert_eq!(foreign.events[0]["traceparent"], FOREIGN);
    let malformed = exported.committed(MALFORMED);
    assert!(malformed.is_root() && malformed.links.is_empty());
    assert_eq!(malformed.events[0]["traceparent"], MALFORMED);
    assert_eq!(malformed.events[0]["tracestate"], "vendor=1");
    // The sender does not record it, so nobody does.
    assert!(exported.processed(UNRECORDED).is_empty());
    // Neither context was replaced by one of Posta's.
    let creates = operations(&exported.sent, "create").count();
    assert_eq!(creates, 9);
    // What no trace records is sent all the same, in spans of nobody.
    let roots: Vec<_> = operations(&exported.sent, "send")
        .filter(|span| span.is_root())
        .collect();
    assert!(!roots.is_empty() && roots.iter().all(|span| span.links.is_empty()));
}

fn what_no_queue_takes_says_so(exported: &Exported) {
    let create = one(children(&exported.sent, exported.request("orphan")).into_iter());
    let sends: Vec<_> = operations(&exported.sent, "send")
        .filter(|span| span.is_child_of(create))
        .collect();
    assert!(!sends.is_empty());
    for send in sends {
        assert_eq!(send.attribute("error.type"), "unroutable");
        assert!(send.status.starts_with("Error"), "{}", send.status);
    }
}

fn names_kinds_and_attributes_are_the_conventions(exported: &Exported) {
    let all = || exported.sent.iter().chain(&exported.received);
    // An outbox of the application's own does not know the broker.
    let alone = one(children(&exported.sent, exported.request("alone")).into_iter());
    assert_eq!(alone.attribute("messaging.system"), "posta");
    assert_eq!(alone.name, "create trace.note");
    assert!(exported.committed("alone").is_child_of(alone));
    let kinds = [
        ("create", "Producer"),
        ("send", "Client"),
        ("process", "Consumer"),
        ("settle", "Client"),
    ];
    for (operation, kind) in kinds {
        let mut count = 0;
        let is_asked_for = |span: &&Span| span.attribute("messaging.operation.name") == operation;
        for span in all()
            .filter(is_asked_for)
            .filter(|span| span.span_id != alone.span_id)
        {
            count += 1;
            assert_eq!(span.kind, kind);
            assert_eq!(span.attribute("messaging.operation.type"), operation);
            assert_eq!(span.attribute("messaging.system"), exported.system);
            assert_eq!(span.attribute("messaging.client.id").len(), 36);
            assert_eq!(
                span.attribute("server.address").is_empty(),
                !exported.is_rabbitmq
            );
            assert_eq!(
                span.attribute("server.port").is_empty(),
                !exported.is_rabbitmq
            );
            assert!(span.nanoseconds < 60_000_000_000);
        }
        assert_eq!(
            count > 0,
            operation != "settle" || exported.is_rabbitmq,
            "{operation}"
        );
    }
    let create = one(children(&exported.sent, exported.request("journey")).into_iter());
    assert_eq!(
        create.name,
        format!("create {}", exported.destination("trace.note"))
    );
    let send = exported.send_of(&exported.sent, create);
    let process = exported.committed("journey");
    assert_eq!(
        process.name,
        format!("process {}", exported.source("trace.note"))
    );
    let id = create.attribute("messaging.message.id");
    assert_eq!(id.len(), 36);
    assert_eq!(send.attribute("messaging.message.id"), id);
    assert_eq!(process.attribute("messaging.message.id"), id);
    assert_eq!(send.attribute("messaging.batch.message_count"), "");
    assert_eq!(send.name, create.name.replace("create", "send"));
    assert_eq!(process.attribute("messaging.consumer.group.name"), "notes");
    let name = create.attribute("messaging.destination.name");
    let partition = process.attribute("messaging.destination.partition.id");
    assert!(["0", "1"].contains(&partition));
    let source = process.attribute("messaging.destination.name");
    match exported.is_rabbitmq {
        true => {
            let routing_key = create.attribute("messaging.rabbitmq.destination.routing_key");
            assert!(routing_key.starts_with("trace.note."));
            assert_eq!(name, format!("posta:{routing_key}"));
            assert_eq!(source, format!("{name}:notes.1.{partition}"));
        }
        false => assert_eq!((name, source), ("trace.note", "trace.note:notes")),
    }
    let processed = operations(&exported.received, "process");
    let processed = processed.filter(|span| {
        span.attribute("posta.rolled_back").is_empty() && span.attribute("error.type").is_empty()
    });
    // All but the one that nobody records.
    assert_eq!(processed.count() as i64, HANDLED - 1);
}

on_every_combination!(one_trace_connects_two_processes);
