//! The helpers in `tests/support` are tested too: a wrong oracle is worse than none.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};

const SHORT: Duration = Duration::from_millis(100);

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).expect("a process id is an i32");
    test_kill_process(Pid::from_raw(pid).expect("not zero")).is_ok()
}

#[test]
fn a_server_is_gone_when_its_handle_is_dropped_even_if_it_was_suspended() {
    for is_suspended in [false, true] {
        let server = RedisServer::start();
        let pid = server.pid();
        assert!(is_alive(pid));
        if is_suspended {
            server.stop();
        }
        drop(server);
        assert!(!is_alive(pid));
    }
}

#[tokio::test]
async fn a_server_has_a_separate_folder_which_is_removed_with_it() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let folder = raw.cmd(&["CONFIG", "GET", "dir"]).await.array()[1].clone();
    assert!(Path::new(folder.text()).exists());
    drop(server);
    assert!(!Path::new(folder.text()).exists());
}

#[tokio::test]
async fn a_restarted_server_is_empty_on_the_same_port() {
    let mut server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    let mut raw = Raw::connect(port).await;
    raw.cmd(&["SET", "a", "1"]).await;
    server.restart();
    assert!(raw.try_cmd(&["PING"]).await.is_err());
    let mut raw = Raw::connect(port).await;
    assert_eq!(raw.cmd(&["DBSIZE"]).await.int(), 0);
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
}

#[tokio::test]
async fn commandstats_counts_calls() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["SET", "a", "1"]).await;
    raw.reset_stats().await;
    let script = "redis.call('GET', KEYS[1]) return redis.call('GET', KEYS[1])";
    raw.cmd(&["EVAL", script, "1", "a"]).await;
    raw.cmd(&["GET", "a"]).await;
    let stats = raw.commandstats().await;
    assert_eq!(stats.get("get"), Some(&3));
    assert_eq!(stats.get("eval"), Some(&1));
    assert_eq!(stats.get("set"), None);
}

#[tokio::test]
async fn a_raw_client_reads_every_kind_of_reply() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let script = "return {7, 'two\\r\\nlines', {ok='fine'}, false, {err='ERR no'}, {}}";
    let reply = raw.cmd(&["EVAL", script, "0"]).await;
    let expected = [
        Reply::Int(7),
        Reply::Bulk(b"two\r\nlines".to_vec()),
        Reply::Simple("fine".to_owned()),
        Reply::Nil,
        Reply::Error("ERR no".to_owned()),
        Reply::Array(Vec::new()),
    ];
    assert_eq!(reply.array(), expected);
    assert!(raw.cmd(&["GET", "missing"]).await.is_nil());
    assert_eq!(
        raw.cmd(&["GET"]).await.error().map(|e| &e[..4]),
        Some("ERR ")
    );
}

#[tokio::test]
async fn a_raw_client_sees_sorted_sets_keys_and_the_clock() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let before = raw.server_time_ms().await;
    let add: [&[u8]; 6] = [b"ZADD", b"z\xff", b"2", b"b", b"1.5", b"a"];
    raw.cmd(&add).await;
    let members = raw.zmembers(b"z\xff").await;
    assert_eq!(members, [(b"a".to_vec(), 1.5), (b"b".to_vec(), 2.0)]);
    assert_eq!(raw.zmembers("missing").await, []);
    assert_eq!(raw.keys("z*").await, [b"z\xff"]);
    assert!(raw.server_time_ms().await >= before);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "pigs fly")]
async fn eventually_panics_with_the_name_of_its_condition() {
    eventually("pigs fly", SHORT, async || false).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stepped_clock_moves_the_time_of_a_running_server() {
    let clock = testing::clock::SteppedClock::compile();
    let server = clock.server();
    let mut raw = Raw::connect(server.port()).await;
    let before = raw.server_time_ms().await;
    raw.cmd(&["SET", "a", "1", "PX", "3600000"]).await;
    clock.set(-3_600);
    // An hour, less the time that the test took.
    let back = before - raw.server_time_ms().await;
    assert!((3_540_000..=3_600_000).contains(&back), "{back} ms");
    // The key's hour has become almost two.
    assert!(raw.cmd(&["PTTL", "a"]).await.int() > 3_700_000);
    clock.set(0);
    assert!(raw.server_time_ms().await >= before);
    assert_eq!(raw.cmd(&["GET", "a"]).await.int(), 1);
}

#[tokio::test]
async fn a_stall_of_the_runtime_is_measured() {
    let watch = testing::stall::StallWatch::start();
    tokio::time::sleep(SHORT).await;
    // Blocks the only thread of the runtime.
    std::thread::sleep(SHORT * 3);
    tokio::time::sleep(SHORT).await;
    assert!(watch.longest() >= SHORT * 2, "{:?}", watch.longest());
}
