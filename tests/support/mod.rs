//! What the tests of the binary stand on: a project in a temporary folder, the binary run in it, and
//! a model server on loopback that says what it is told to say.

pub mod dice;
pub mod expire;
pub mod wait;

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use wait::until;

/// A project in a folder of its own.
///
/// All of it is trusted, whoever wrote it: `POSSE_TRUST` names the folder. What commands keep of the person is outside.
pub struct Project {
    folder: TempDir,
    state: TempDir,
    env: Vec<(String, String)>,
}

/// A pipe that nobody reads, with as much in it as fits.
pub fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let flags = rustix::fs::fcntl_getfl(&write).expect("flags");
    rustix::fs::fcntl_setfl(&write, flags | rustix::fs::OFlags::NONBLOCK).expect("set");
    while rustix::io::write(&write, b"x").is_ok() {}
    rustix::fs::fcntl_setfl(&write, flags).expect("set");
    (read, write)
}

/// How a command ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// The JSON document it printed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("no JSON ({e}): {}\n{}", self.out, self.err))
    }

    /// The lines of JSON it printed.
    pub fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Itself, having ended well.
    #[track_caller]
    pub fn ok(self) -> Ended {
        self.expect(0)
    }

    /// Itself, having ended with `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }
}

impl Project {
    /// An empty folder.
    pub fn empty() -> Project {
        let folder = || tempfile::tempdir().expect("a folder");
        let mut project = Project { folder: folder(), state: folder(), env: Vec::new() };
        project.env.push(("POSSE_TRUST".into(), project.path().to_str().expect("UTF-8").into()));
        project
    }

    /// A folder with what `posse init` writes.
    pub fn begun() -> Project {
        let project = Project::empty();
        project.posse(&["init"]).ok();
        project
    }

    /// A begun project whose model is `server`.
    pub fn with_model(server: &ModelServer) -> Project {
        let mut project = Project::begun();
        project.env.push(("OPENAI_BASE_URL".into(), server.base_url.clone()));
        project.env.push(("OPENAI_MODEL".into(), "mock".into()));
        project
    }

    /// Sets a variable of its environment.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    /// Takes a variable out of its environment.
    pub fn unset(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The same, of which nothing is trusted but by what commands say.
    pub fn untrusted(mut self) -> Project {
        self.env.retain(|(name, _)| name != "POSSE_TRUST");
        self
    }

    /// Where commands keep what is the person's.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, bytes).expect("written");
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posse"));
        command.args(args).current_dir(self.path()).env_clear();
        // Nobody listens on port 1: a real Ollama of this machine is not found.
        command.env("OLLAMA_HOST", "127.0.0.1:1").env("HOME", self.path()).env("PATH", "/usr/bin:/bin");
        command.env("XDG_STATE_HOME", self.state.path());
        command.envs(self.env.iter().cloned());
        command
    }

    /// Runs `posse` to its end.
    pub fn posse(&self, args: &[&str]) -> Ended {
        self.posse_with(args, b"")
    }

    /// Runs `posse` to its end, with this on its standard input.
    pub fn posse_with(&self, args: &[&str], input: &[u8]) -> Ended {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_vec();
        // It may end without reading all of it.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let Output { status, stdout, stderr } = child.wait_with_output().expect("ended");
        writer.join().expect("written");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    /// Starts `posse` and lets it run.
    pub fn start(&self, args: &[&str]) -> Running {
        self.start_with(args, Stdio::null())
    }

    /// Starts `posse` and lets it run; what it reads comes by and by, from [`Running::write`].
    pub fn start_to_talk(&self, args: &[&str]) -> Running {
        self.start_with(args, Stdio::piped())
    }

    fn start_with(&self, args: &[&str], input: Stdio) -> Running {
        let mut command = self.command(args);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::of(command)
    }

    /// Waits until the job is in this state.
    pub fn wait_for_state(&self, job: i64, state: &str) {
        until(&format!("job {job} is {state}"), || {
            self.posse(&["show", &job.to_string(), "--json"]).ok().json()["job"]["state"] == state
        });
    }
}

/// A process of ours; ended with the test.
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts it.
    pub fn of(mut command: Command) -> Running {
        Running { child: command.spawn().expect("started") }
    }

    /// How many files it has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }

    /// Asks it to end, as a service manager would.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Has it stand still, as a debugger does.
    pub fn stop(&self) {
        self.signal("-STOP");
    }

    /// Has it go on after [`Running::stop`].
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    /// Sets a limit of it, while it runs; none is whatever it may have.
    pub fn limit(&self, resource: Resource, current: Option<u64>) {
        let maximum = getrlimit(resource).maximum;
        let limit = Rlimit { current: current.or(maximum), maximum };
        prlimit(Pid::from_raw(self.child.id().cast_signed()), resource, limit).expect("a process of ours");
    }

    /// Reads its standard error until it has said this, and gives what it said.
    pub fn hear(&mut self, text: &str) -> String {
        let stderr = self.child.stderr.as_mut().expect("piped");
        let mut heard = Vec::new();
        let mut byte = [0];
        while !String::from_utf8_lossy(&heard).contains(text) {
            let read = stderr.read(&mut byte).expect("can be read");
            assert!(read == 1, "it ended without saying {text:?}: {}", String::from_utf8_lossy(&heard));
            heard.extend(byte);
        }
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// Reads its standard error until it has said this, and gives the rest of that line.
    pub fn hear_rest_of(&mut self, text: &str) -> String {
        self.hear(text);
        self.hear("\n").trim_end().to_owned()
    }

    /// Writes to its standard input.
    pub fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().expect("piped").write_all(text.as_bytes()).expect("written");
    }

    /// Ends its standard input.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("/bin/kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        // Small outputs fit into the pipes, so nothing blocks before it is read.
        until("it ends", || self.child.try_wait().expect("waited").is_some());
        let mut text = (String::new(), String::new());
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut text.0).expect("UTF-8");
        }
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut text.1).expect("UTF-8");
        }
        let code = self.child.wait().expect("ended").code().unwrap_or(-1);
        Ended { code, out: text.0, err: text.1 }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One thing the model says.
#[derive(Clone)]
pub enum Say {
    /// A call of a tool.
    Call(&'static str, Value),
    /// Plain words.
    Words(&'static str),
    /// Nothing, until the connection ends.
    Silence,
    /// No words of the model's: a status, with an error of this text.
    Refusal(&'static str, &'static str),
    /// What fits a request to which it has spoken so many times.
    Fitting(fn(&Value, usize) -> Say),
}

/// A server that speaks enough of the protocol, and says the n-th thing to a conversation in which
/// the model has spoken n times.
pub struct ModelServer {
    pub base_url: String,
    script: Arc<Mutex<Vec<Say>>>,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl ModelServer {
    pub fn start(script: Vec<Say>) -> ModelServer {
        ModelServer::start_with("http", script, Some)
    }

    /// The same behind something that each connection goes through first.
    pub fn start_with<S: Read + Write>(
        scheme: &str,
        script: Vec<Say>,
        through: impl Fn(TcpStream) -> Option<S> + Clone + Send + 'static,
    ) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base_url = format!("{scheme}://{}/v1", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let script = Arc::new(Mutex::new(script));
        let played = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, seen) = (played.lock().expect("not poisoned").clone(), Arc::clone(&seen));
                let through = through.clone();
                std::thread::spawn(move || answer(through(stream)?, &script, &seen));
            }
        });
        ModelServer { base_url, script, requests }
    }

    /// Has it say something else from now on.
    pub fn says(&self, script: Vec<Say>) {
        *self.script.lock().expect("not poisoned") = script;
    }

    /// What was asked.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("not poisoned").clone()
    }

    /// Waits until it was asked `n` times.
    #[track_caller]
    pub fn wait_for_requests(&self, n: usize) {
        until(&format!("the model is asked {n} times"), || self.requests().len() >= n);
    }
}

/// The task that a message tells, behind what it tells of the workspace.
pub fn task_in(message: &str) -> Option<&str> {
    const TASK: &str = "Your task:\n";
    let at = match message.starts_with("The workspace has") {
        true => message.find(&format!("\n\n{TASK}"))? + 2,
        false => 0,
    };
    Some(&message[at..]).filter(|task| task.starts_with(TASK))
}

fn answer(stream: impl Read + Write, script: &[Say], seen: &Mutex<Vec<Value>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (is_post, is_tokenize) = (line.starts_with("POST"), line.starts_with("POST /tokenize "));
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.to_ascii_lowercase().trim().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut stream = reader.into_inner();
    if !is_post {
        return reply(&mut stream, "application/json", &json!({"data": [{"id": "mock"}]}).to_string());
    }
    let request: Value = serde_json::from_slice(&body).ok()?;
    if is_tokenize {
        let words = request["content"].as_str()?.split_whitespace().count();
        return reply(&mut stream, "application/json", &json!({"tokens": vec![7; words]}).to_string());
    }
    seen.lock().expect("not poisoned").push(request.clone());
    // Worked examples stand before the task; what the agent has said itself stands after it.
    let messages = request["messages"].as_array()?;
    let is_task = |m: &Value| m["role"] == "user" && m["content"].as_str().is_some_and(|t| task_in(t).is_some());
    let task = messages.iter().rposition(is_task).unwrap_or(0);
    let spoken = messages[task..].iter().filter(|m| m["role"] == "assistant").count();
    let said = match script.get(spoken).or(script.last())? {
        Say::Fitting(fitting) => fitting(&request, spoken),
        said => said.clone(),
    };
    let (name, arguments) = match said {
        Say::Fitting(_) => return None,
        Say::Call(name, arguments) => (name, arguments),
        Say::Words(text) => return say(&mut stream, &request, json!({"content": text}), "stop"),
        Say::Refusal(status, text) => {
            let body = json!({"error": {"message": text}}).to_string();
            return respond(&mut stream, status, "application/json", &body);
        }
        Say::Silence => {
            // Until the other side has had enough.
            let _ = stream.read(&mut [0; 1]);
            return None;
        }
    };
    let structured = request.get("tools").is_none();
    let message = if structured {
        json!({"role": "assistant", "content": json!({"thinking": "I look.", "tool": name, "arguments": arguments}).to_string()})
    } else {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"role": "assistant", "content": "I look.", "tool_calls": [{"index": 0, "id": format!("c{spoken}"), "type": "function", "function": function}]})
    };
    let finish = if structured { "stop" } else { "tool_calls" };
    say(&mut stream, &request, message, finish)
}

fn say(stream: &mut impl Write, request: &Value, mut message: Value, finish: &str) -> Option<()> {
    message["role"] = "assistant".into();
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
    if request["stream"] == true {
        let piece = json!({"model": "mock", "choices": [{"index": 0, "delta": message, "finish_reason": finish}], "usage": usage});
        return reply(stream, "text/event-stream", &format!("data: {piece}\n\ndata: [DONE]\n\n"));
    }
    let whole = json!({"model": "mock", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage});
    reply(stream, "application/json", &whole.to_string())
}

fn reply(stream: &mut impl Write, kind: &str, body: &str) -> Option<()> {
    respond(stream, "200 OK", kind, body)
}

fn respond(stream: &mut impl Write, status: &str, kind: &str, body: &str) -> Option<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    stream.flush().ok()
}
