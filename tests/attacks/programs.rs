//! `execute_code`: what programs can do, and what they cannot, whatever they try.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::calls::{Beginning, CallResult, Calls, Came, EXECUTE_CODE, Function, MadeCall};
use posse_core::tool::{ToolError, ToolErrorCategory, Tools as _};
use posse_infra::tool::{CodeLimits, ToolRegistry};
use rustix::process::Pid;
use serde_json::json;

use crate::support::Bench;

/// Small, so that a test machine does not suffer.
const SMALL: CodeLimits =
    CodeLimits { processor_seconds: 1, seconds: 20, memory_mb: 32, stack_kb: 256, source_kb: 64, output_kb: 64 };

/// Answers each call by its tool and arguments, the newest first, as soon as it is asked for a result.
#[derive(Debug, Default)]
struct Echo {
    open: Mutex<Vec<(u32, MadeCall)>>,
    made: Mutex<Vec<MadeCall>>,
}

#[async_trait]
impl Calls for Echo {
    async fn begin(&self) -> Result<Beginning, ToolError> {
        let functions = ["echo", "fail", "hang"].map(|name| Function {
            name: name.into(),
            tool: name.into(),
            declaration: format!("{name}(args: {{ text?: string }}): Promise<string>;"),
        });
        Ok(Beginning { at: 1_700_000_000_000, functions: functions.into() })
    }

    async fn make(&self, calls: Vec<MadeCall>) -> Result<CallResult, ToolError> {
        let (number, call) = {
            let (mut made, mut open) = (self.made.lock().unwrap(), self.open.lock().unwrap());
            for call in calls {
                open.push((made.len() as u32, call.clone()));
                made.push(call);
            }
            open.pop().unwrap()
        };
        match call.tool.as_str() {
            "fail" => Ok(CallResult {
                number,
                came: Came::Failed(ToolErrorCategory::NotFound),
                text: "it is not there".into(),
            }),
            "hang" => std::future::pending().await,
            _ => Ok(CallResult { number, came: Came::Done, text: call.arguments }),
        }
    }
}

fn run_within(limits: CodeLimits, code: &str) -> Result<String, ToolError> {
    let bench = Bench::new();
    let mut cx = bench.cx.clone();
    cx.calls = Some(std::sync::Arc::new(Echo::default()));
    let registry = ToolRegistry::builtin().with_code(limits);
    let tool = registry.get(EXECUTE_CODE).unwrap();
    let args = json!({"code": code});
    bench.runtime().block_on(tool.call(&cx, args)).map(|output| output.text)
}

fn run(code: &str) -> Result<String, ToolError> {
    run_within(SMALL, code)
}

#[track_caller]
fn gives(code: &str, expected: &str) {
    assert_eq!(run(code).as_deref(), Ok(expected), "{code}");
}

/// The time that children of this process took on processors.
fn processor_time() -> Duration {
    // SAFETY: a `rusage` of zeros is a legal one, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

pub fn what_programs_give() {
    gives("return 6 * 7;", "42");
    gives("return [1, 2, 3].map((n) => n * n);", "[1,4,9]");
    gives("return { big: 2n ** 70n, of: new Map([['a', 1]]) };", r#"{"big":"1180591620717411303424","of":[["a",1]]}"#);
    gives("console.log('one', { two: 2 }); return 'done';", "done\n[log]\none {\"two\":2}");
    gives("console.warn([1]);", "[log]\n[1]");
    assert!(run("1 + 1;").unwrap().contains("return VALUE"));
    let error = run("let a = 1;\nconst b = a.nothing.here;").unwrap_err();
    assert_eq!(error.category, ToolErrorCategory::Failed);
    assert!(error.message.contains("TypeError") && error.message.contains("program.js:2"), "{error}");
    let error = run("return (1 +;").unwrap_err();
    assert!(error.message.contains("SyntaxError"), "{error}");
    // A character that is none by itself is replaced, and breaks nothing.
    gives("return '\\ud800';", "\u{fffd}");
}

pub fn calls_of_programs() {
    gives("return await tools.echo({ text: 'hi' });", r#"{"text":"hi"}"#);
    gives(
        "const all = await Promise.all([1, 2, 3].map((n) => tools.echo({ n }))); return all.join();",
        r#"{"n":1},{"n":2},{"n":3}"#,
    );
    gives(
        "try { await tools.fail({}); } catch (e) { return [e.name, e.category, e.message]; }",
        r#"["ToolError","not_found","it is not there"]"#,
    );
    // Who awaits nothing is waited for all the same.
    gives("tools.echo({}).then(console.log); return 1;", "1\n[log]\n{}");
    let error = run("await tools.nothing({});").unwrap_err();
    assert!(error.message.contains("there is no function tools.nothing; there are: echo, fail, hang"), "{error}");
    let error = run("await tools.echo('x');").unwrap_err();
    assert!(error.message.contains("call it with one object"), "{error}");
    gives("return await tools.describe('fail');", "fail(args: { text?: string }): Promise<string>;");
    gives("return (await tools.search('echo or so')).includes('echo(');", "true");
    let error = run("await new Promise(() => {});").unwrap_err();
    assert!(error.message.contains("nothing settles"), "{error}");
}

pub fn it_does_the_same_each_time() {
    let code = "return [Date.now(), new Date().toISOString(), Date(), new Date(0).getTimezoneOffset(), Math.random(), \
                Math.random(), new (class extends Date {})().getTime()];";
    let first = run(code).unwrap();
    assert!(first.contains("1700000000000,\"2023-11-14T22:13:20.000Z\""), "{first}");
    assert_eq!(run(code).unwrap(), first);
    gives(
        "return typeof performance + typeof WeakRef + typeof setTimeout + typeof FinalizationRegistry;",
        &"undefined".repeat(4),
    );
}

/// Programs that try for more than they may have, each with the limit that ends it.
const HOSTILE: &[(&str, &str)] = &[
    ("while (true) {}", "processor time"),
    ("for (;;) await null;", "processor time"),
    ("const f = () => Promise.resolve().then(f); f(); await f();", "processor time|memory"),
    ("return /^(a+)+$/.test('a'.repeat(40) + 'b');", "processor time|memory"),
    ("return new Array(1_000_000_000) + '';", "processor time|memory"),
    ("return Array.prototype.join.call({ length: 4294967295 }, '');", "processor time|memory"),
    ("return new Array(4294967295).reverse().length;", "processor time|memory"),
    ("return new Array(1e9).toString();", "processor time|memory"),
    ("return Array.prototype.concat.call([], new Array(4e9)).length;", "processor time|memory"),
    ("return Array.prototype.indexOf.call({ length: 4294967295 }, 99);", "processor time"),
    ("const n = 3n ** 200000n; for (;;) n * n;", "processor time|memory"),
    ("for (;;) (2n ** 1000000n).toString();", "processor time|memory"),
    ("Object.defineProperty(Object.prototype, 'then', { get() { while (true) {} } }); return {};", "processor time"),
    ("class A { get x() { return this.x; } } return new A().x;", "stack"),
    ("const f = () => f() + 1; f();", "stack"),
    ("const all = []; for (;;) all.push(new Array(1000).fill(0));", "memory"),
    ("let text = 'x'; for (;;) { text += text; text.charCodeAt(1); }", "memory"),
    ("return new Uint8Array(1 << 30).length;", "memory"),
    ("const all = []; for (;;) all.push(Promise.resolve().then(() => all));", "memory"),
    ("try { return new Uint8Array(1 << 30); } catch { return 'caught'; }", "memory"),
    ("const p = new Proxy({}, { get: (_, name) => p }); for (;;) p.x.y.z;", "processor time"),
    ("for (;;) console.log('x'.repeat(1000));", "output"),
    ("return 'x'.repeat(100_000);", "output"),
    ("await tools.echo({ text: 'x'.repeat(100_000) });", "output"),
    ("for (;;) tools.echo({});", "calls"),
    ("for (let i = 0; i < 101; i++) await tools.echo({ i });", "calls"),
    ("const all = []; for (let i = 0; i < 1000; i++) all.push(tools.echo({ i })); await Promise.all(all);", "calls"),
    ("JSON.stringify = () => { while (true) {} }; await tools.echo({});", "processor time"),
    ("Promise.prototype.then = () => { while (true) {} }; tools.echo({}).then(); return 1;", "processor time"),
];

pub fn hostile_programs_end_at_a_limit() {
    let (mut slowest, mut wrong) = (Duration::ZERO, Vec::new());
    for (code, limits) in HOSTILE {
        let (began, before) = (Instant::now(), processor_time());
        let ended = run(code);
        let computed = processor_time() - before;
        eprintln!("{:>6.2} s of {:>5.2} s  {limits:<22} {code}", computed.as_secs_f64(), began.elapsed().as_secs_f64());
        slowest = slowest.max(computed);
        let is_named = |error: &ToolError| limits.split('|').any(|limit| error.message.contains(&format!("({limit})")));
        // Others may be at work on the same processors, so not by the clock.
        let is_in_time = computed < Duration::from_secs(2 * SMALL.processor_seconds);
        match ended {
            Err(error) if error.category == ToolErrorCategory::LimitExceeded && is_named(&error) && is_in_time => {}
            ended => wrong.push((code, computed, ended)),
        }
    }
    eprintln!("the slowest took {:.2} s", slowest.as_secs_f64());
    assert!(wrong.is_empty(), "{wrong:#?}");
    gives("return 'alive';", "alive");
}

pub fn sources_that_are_none() {
    for code in ["[".repeat(30_000), format!("return {}1{};", "(".repeat(20_000), ")".repeat(20_000))] {
        let error = run(&code).unwrap_err();
        assert!(error.message.contains("limit") || error.message.contains("SyntaxError"), "{error}");
    }
    let error = run(&" ".repeat(65 * 1024)).unwrap_err();
    assert!(error.category == ToolErrorCategory::LimitExceeded && error.message.contains("source"), "{error}");
    assert_eq!(run(" ").unwrap_err().category, ToolErrorCategory::InvalidArguments);
    let nested = "new RegExp('('.repeat(5000) + ')'.repeat(5000)).test('x'); return 1;";
    assert!(run(nested).is_ok() || run(nested).unwrap_err().message.len() < 2000);
    // It closes the function that is around it, and comes no further than any other.
    gives("}), (() => 7), (async () => { return 8;", "8");
}

pub fn time_ends_a_program_that_only_waits() {
    let began = Instant::now();
    let limits = CodeLimits { seconds: 1, ..SMALL };
    let error = run_within(limits, "await tools.hang({});").unwrap_err();
    assert!(error.message.contains("the limit (time)"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Runs a program that waits for a call, and does this with its process.
fn while_it_waits(act: impl FnOnce(Pid)) -> Result<String, ToolError> {
    let bench = Bench::new();
    let mut cx = bench.cx.clone();
    cx.calls = Some(std::sync::Arc::new(Echo::default()));
    let registry = ToolRegistry::builtin().with_code(CodeLimits { seconds: 5, ..SMALL });
    let tool = registry.get(EXECUTE_CODE).unwrap();
    let ended = bench.runtime().block_on(async {
        let acting = async {
            // Its process is the youngest of the four that it takes.
            let began = Instant::now();
            let program = loop {
                assert!(began.elapsed() < Duration::from_secs(20), "it has no process");
                let all = descendants(rustix::process::getpid());
                match all.iter().max_by_key(|pid| pid.as_raw_nonzero()) {
                    Some(last) if all.len() >= 4 => break *last,
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            tokio::time::sleep(Duration::from_millis(200)).await;
            act(program);
        };
        futures_join(tool.call(&cx, json!({"code": "await tools.hang({});"})), acting).await
    });
    ended.map(|output| output.text)
}

pub fn an_engine_that_breaks_down_is_a_failed_call() {
    let error = while_it_waits(|program| {
        rustix::process::kill_process(program, rustix::process::Signal::SEGV).unwrap();
    });
    let error = error.unwrap_err();
    assert!(error.message.contains("broke down (signal 11)"), "{error}");
    gives("return 1;", "1");
}

pub fn its_process_has_nothing() {
    gives(
        "return [typeof require, typeof process, typeof std, typeof os, typeof fetch].join();",
        &["undefined"; 5].join(","),
    );
    let error = run("return await import('std');").unwrap_err();
    assert_eq!(error.category, ToolErrorCategory::Failed, "{error}");
    let _ = while_it_waits(|program| {
        let of = |file: &str| format!("/proc/{}/{file}", program.as_raw_nonzero());
        let status = std::fs::read_to_string(of("status")).unwrap();
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Threads:\t1"] {
            assert!(status.contains(line), "{line}: {status}");
        }
        // The rest only root may see.
        if rustix::process::geteuid().is_root() {
            let names = |of: String| {
                let entries = std::fs::read_dir(of).unwrap().flatten();
                let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
                names.sort();
                names
            };
            assert_eq!(names(of("fd")), ["0", "1", "2"]);
            assert_eq!(names(of("root/")), ["proc", "tmp"]);
            assert_eq!(std::fs::read_to_string(of("environ")).unwrap(), "");
        }
    });
}

async fn futures_join<T>(first: impl Future<Output = T>, second: impl Future<Output = ()>) -> T {
    tokio::join!(first, second).0
}

/// The processes that come from this one.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let pid = found[at].as_raw_nonzero();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let of_tasks = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all: String = of_tasks.chain([text]).collect::<Vec<_>>().join(" ");
        for child in all.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        at += 1;
    }
    found.split_off(1)
}

pub fn a_stop_ends_it() {
    let bench = Bench::new();
    let (stopper, stop) = stop_pair();
    let mut cx = bench.cx.clone();
    cx.stop = stop;
    cx.calls = Some(std::sync::Arc::new(Echo::default()));
    let registry = ToolRegistry::builtin().with_code(SMALL);
    let tool = registry.get(EXECUTE_CODE).unwrap();
    let ended = bench.runtime().block_on(async {
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stopper.stop(StopReason::Shutdown);
        };
        futures_join(tool.call(&cx, json!({"code": "await tools.hang({});"})), stopping).await
    });
    assert_eq!(ended.unwrap_err().category, ToolErrorCategory::Interrupted);
    assert!(descendants(rustix::process::getpid()).is_empty());
}
