//! A virtual host of its own for each test, on the run's RabbitMQ.
//!
//! Tests that disturb the server itself (alarms, restarts) would disturb all others, so every test
//! says which kind it is when it asks for its virtual host: [`Vhost::fresh`] waits for tests that
//! disturb, [`Vhost::alone`] waits for everybody and has the server to itself. A test asks once:
//! one that asked twice could wait for itself.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use posta::broker::rabbitmq::RabbitMqOptions;
use serde_json::{Value, json};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use super::http;

static SERVER: std::sync::LazyLock<Arc<RwLock<()>>> = std::sync::LazyLock::new(Arc::default);
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// How long anything may take that the broker does by itself.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A virtual host, deleted at the end with all that is in it.
pub(crate) struct Vhost {
    name: String,
    api: Api,
    _turn: Turn,
}

enum Turn {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Vhost {
    /// For a test that leaves the server as it is.
    pub(crate) async fn fresh() -> Self {
        let guard = SERVER.clone().read_owned().await;
        Self::make(Turn::Shared { _guard: guard })
    }

    /// For a test that disturbs the server.
    pub(crate) async fn alone() -> Self {
        let guard = SERVER.clone().write_owned().await;
        Self::make(Turn::Alone { _guard: guard })
    }

    fn make(turn: Turn) -> Self {
        let api = Api::from_environment();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        api.expect("PUT", &format!("/api/vhosts/{name}"), Some(&json!({})));
        let rights = json!({"configure": ".*", "write": ".*", "read": ".*"});
        api.expect(
            "PUT",
            &format!("/api/permissions/{name}/{}", api.user),
            Some(&rights),
        );
        Self {
            name,
            api,
            _turn: turn,
        }
    }

    /// Its URL, without TLS.
    pub(crate) fn url(&self) -> String {
        self.within(&variable("POSTA_TEST_AMQP"))
    }

    /// Its URL, with TLS; the server's authority is in the file that `POSTA_TEST_POSTGRES_CA`
    /// names.
    pub(crate) fn url_tls(&self) -> String {
        self.within(&variable("POSTA_TEST_AMQPS"))
    }

    /// Its URL with another host and port, such as a proxy's.
    pub(crate) fn url_by(&self, address: std::net::SocketAddr) -> String {
        let url = self.url();
        let (login, rest) = url.rsplit_once('@').expect("the URL has a login");
        let (_, path) = rest.split_once('/').expect("the URL has a path");
        format!("{login}@{address}/{path}")
    }

    /// Options for it.
    pub(crate) fn options(&self) -> RabbitMqOptions {
        RabbitMqOptions::from_url(&self.url()).expect("the URL is one of RabbitMQ's")
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> String {
        let url = self.url();
        let (_, rest) = url.rsplit_once('@').expect("the URL has a login");
        rest.split_once('/')
            .expect("the URL has a path")
            .0
            .to_owned()
    }

    fn within(&self, url: &str) -> String {
        let (server, _) = url.rsplit_once('/').expect("the URL has a path");
        format!("{server}/{}", self.name)
    }

    /// What the management API says of a queue; `Null` if there is none.
    pub(crate) fn queue(&self, name: &str) -> Value {
        let (status, queue) =
            self.api
                .request("GET", &format!("/api/queues/{}/{name}", self.name), None);
        if status == 200 { queue } else { Value::Null }
    }

    /// What the management API says of all queues.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn queues(&self) -> std::io::Result<Vec<Value>> {
        let path = format!("/api/queues/{}", self.name);
        let (_, queues) = self.api.try_request("GET", &path, None)?;
        Ok(queues.as_array().cloned().unwrap_or_default())
    }

    /// Has the management API publish a message into one queue, past all exchanges.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn publish_into(
        &self,
        queue: &str,
        properties: &Value,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let message = json!({
            "properties": properties,
            "routing_key": queue,
            "payload": http::base64(payload),
            "payload_encoding": "base64",
        });
        let path = format!("/api/exchanges/{}/amq.default/publish", self.name);
        self.api
            .try_request("POST", &path, Some(&message))
            .map(drop)
    }

    /// The names of all queues.
    pub(crate) fn queue_names(&self) -> Vec<String> {
        let path = format!("/api/queues/{}", self.name);
        let queues = self.api.expect("GET", &path, None);
        let queues = queues.as_array().cloned().unwrap_or_default();
        let names = queues.iter().filter_map(|queue| queue["name"].as_str());
        names.map(str::to_owned).collect()
    }

    /// The bindings of an exchange: the queue or exchange that gets something, and its routing key.
    pub(crate) fn bindings(&self, exchange: &str) -> Vec<(String, String)> {
        let path = format!("/api/exchanges/{}/{exchange}/bindings/source", self.name);
        let bindings = self.api.expect("GET", &path, None);
        let bindings = bindings.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        bindings
            .iter()
            .map(|binding| (text(&binding["destination"]), text(&binding["routing_key"])))
            .collect()
    }

    /// Waits until the management API says something of a queue that satisfies; it counts once a
    /// second.
    pub(crate) async fn queue_until(
        &self,
        name: &str,
        satisfies: impl Fn(&Value) -> bool,
    ) -> Value {
        let end = Instant::now() + SOON;
        loop {
            let queue = self.queue(name);
            if satisfies(&queue) {
                return queue;
            }
            assert!(Instant::now() < end, "the queue {name} stays at {queue}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The names of the virtual host's open connections.
    pub(crate) fn connections(&self) -> Vec<String> {
        let path = format!("/api/vhosts/{}/connections", self.name);
        let (_, connections) = self.api.request("GET", &path, None);
        let connections = connections.as_array().cloned().unwrap_or_default();
        connections
            .iter()
            .filter_map(|connection| connection["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// Has the server close all connections of the virtual host; returns how many.
    pub(crate) async fn close_connections(&self) -> usize {
        let end = Instant::now() + SOON;
        loop {
            let names = self.connections();
            for name in &names {
                let name = name.replace(' ', "%20").replace('>', "%3E");
                self.api
                    .request("DELETE", &format!("/api/connections/{name}"), None);
            }
            if !names.is_empty() || Instant::now() > end {
                return names.len();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Takes the first message out of a queue, as the management API shows it.
    pub(crate) fn get(&self, queue: &str) -> Value {
        let ask = json!({"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"});
        let path = format!("/api/queues/{}/{queue}/get", self.name);
        self.api.expect("POST", &path, Some(&ask))[0].clone()
    }

    /// Has the management API publish a message to the exchange `posta`.
    pub(crate) fn publish(&self, routing_key: &str, properties: &Value, payload: &str) {
        self.publish_bytes(routing_key, properties, payload.as_bytes());
    }

    /// The same with any bytes.
    pub(crate) fn publish_bytes(&self, routing_key: &str, properties: &Value, payload: &[u8]) {
        let message = json!({
            "properties": properties,
            "routing_key": routing_key,
            "payload": http::base64(payload),
            "payload_encoding": "base64",
        });
        let path = format!("/api/exchanges/{}/posta/publish", self.name);
        let answer = self.api.expect("POST", &path, Some(&message));
        assert_eq!(answer["routed"], true);
    }

    /// Makes a durable queue with these arguments, as an operator would.
    pub(crate) fn make_queue(&self, name: &str, arguments: &Value) {
        let queue = json!({"durable": true, "arguments": arguments});
        let path = format!("/api/queues/{}/{name}", self.name);
        self.api.expect("PUT", &path, Some(&queue));
    }

    /// Binds a queue to the exchange `posta`; `false` while that is not there.
    pub(crate) fn bind(&self, queue: &str, routing_key: &str) -> bool {
        let binding = json!({"routing_key": routing_key});
        let path = format!("/api/bindings/{}/e/posta/q/{queue}", self.name);
        self.api.request("POST", &path, Some(&binding)).0 == 201
    }

    /// Makes a queue that gets a copy of all that is published to the exchange `posta` with such a
    /// routing key; waits for the exchange.
    pub(crate) async fn tap(&self, queue: &str, routing_key: &str) {
        self.make_queue(queue, &json!({}));
        let end = Instant::now() + SOON;
        while !self.bind(queue, routing_key) {
            assert!(Instant::now() < end, "there is no exchange posta");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Deletes the exchange `posta`, with its bindings.
    pub(crate) fn delete_exchange(&self) {
        self.api.expect(
            "DELETE",
            &format!("/api/exchanges/{}/posta", self.name),
            None,
        );
    }

    /// Deletes a queue, with what is in it.
    pub(crate) fn delete_queue(&self, name: &str) {
        self.api
            .expect("DELETE", &format!("/api/queues/{}/{name}", self.name), None);
    }

    /// Runs one of the run's control scripts, such as `rabbitmq-restart`; only after
    /// [`Vhost::alone`].
    pub(crate) async fn control(&self, script: &'static str, argument: Option<&str>) -> String {
        self.ensure_alone();
        let argument = argument.map(str::to_owned);
        let run = tokio::task::spawn_blocking(move || control(script, argument.as_deref()));
        run.await.expect("the script runs")
    }

    /// Raises the memory alarm, until the guard is dropped.
    pub(crate) async fn block(&self) -> Undo {
        self.control("rabbitmq-block", None).await;
        Undo {
            script: "rabbitmq-unblock",
            argument: None,
        }
    }

    /// Freezes the server with all its sockets open, until the guard is dropped.
    pub(crate) async fn pause(&self) -> Undo {
        self.control("rabbitmq-pause", None).await;
        Undo {
            script: "rabbitmq-resume",
            argument: None,
        }
    }

    /// Gives a setting of the server another value, until the guard is dropped. Channels read most
    /// of them when they are opened.
    pub(crate) async fn set(&self, name: &str, value: &str) -> Undo {
        let set = |value: &str| format!("application:set_env(rabbit, {name}, {value}).");
        let get = format!("application:get_env(rabbit, {name}).");
        let before = self.control("rabbitmq-eval", Some(&get)).await;
        let digits: String = before.chars().filter(char::is_ascii_digit).collect();
        assert!(!digits.is_empty(), "{name} is a number: {before}");
        self.control("rabbitmq-eval", Some(&set(value))).await;
        Undo {
            script: "rabbitmq-eval",
            argument: Some(set(&digits)),
        }
    }

    fn ensure_alone(&self) {
        assert!(
            matches!(self._turn, Turn::Alone { .. }),
            "a test that disturbs the server asks for Vhost::alone"
        );
    }
}

/// Undoes a disturbance of the server.
#[must_use]
pub(crate) struct Undo {
    script: &'static str,
    argument: Option<String>,
}

impl Drop for Undo {
    fn drop(&mut self) {
        control(self.script, self.argument.as_deref());
    }
}

/// Runs one of the run's control scripts: for those who have the servers to themselves.
pub(crate) fn control(script: &str, argument: Option<&str>) -> String {
    let mut command = Command::new(format!("{}/{script}", variable("POSTA_TEST_SERVERS")));
    let output = command
        .args(argument)
        .output()
        .expect("the script can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Vhost {
    fn drop(&mut self) {
        let path = format!("/api/vhosts/{}", self.name);
        let deleted = self.api.try_request("DELETE", &path, None);
        if !std::thread::panicking() {
            let (status, _) = deleted.expect("the management API answers");
            assert!(status < 300, "the virtual host is deleted: {status}");
        }
    }
}

/// The management API.
struct Api {
    address: String,
    user: String,
    authorization: String,
}

impl Api {
    fn from_environment() -> Self {
        let url = variable("POSTA_TEST_RABBITMQ_API");
        let (login, address) = url
            .trim_start_matches("http://")
            .rsplit_once('@')
            .expect("the URL has a login");
        Self {
            address: address.trim_end_matches('/').to_owned(),
            user: login.split(':').next().unwrap_or_default().to_owned(),
            authorization: http::base64(login.as_bytes()),
        }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.try_request(method, path, body)
            .expect("the management API answers")
    }

    fn try_request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<(u16, Value)> {
        http::request(&self.address, &self.authorization, method, path, body)
    }

    fn expect(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, answer) = self.request(method, path, body);
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        answer
    }
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: start the tests by tests/run"))
}
