//! D12: what a command may use is bounded, and its result names the bound.

use serde_json::json;

use crate::support::{Bench, marker, processes_with};

pub fn processes() {
    let bench = Bench::new();
    let marker = marker();
    // A slow one, that ends by itself even if nothing were bounded.
    let said = bench.over(&format!("for i in $(seq 60); do sleep {marker} & done; sleep {marker}"), 60);
    assert!(said.contains("it had more than 24 processes, the limit. All its processes were ended"), "{said}");
    assert_eq!(processes_with(&marker), 0);
    let threads = "python3 -c '\nimport threading, time\nfor i in range(60): threading.Thread(target=time.sleep, args=(60,)).start()\n'";
    assert!(bench.over(threads, 60).contains("it had more than 24 processes"));
    // The kernel's own bound lies a little higher, and is met by what is faster than any look.
    let bomb = json!({"command": format!("b() {{ b | b & }}; b; sleep {marker}"), "timeout_s": 20});
    let said = bench.run_with(bomb).unwrap_or_else(|error| error.message);
    assert!(said.contains("it had more than 24 processes") || said.contains("fork"), "{said}");
    assert_eq!(processes_with(&marker), 0);
    // As many as it may have.
    assert!(bench.run("for i in $(seq 15); do sleep 1 & done; wait; echo done").ends_with("done"));
}

pub fn memory() {
    let bench = Bench::new();
    let said = bench.over("python3 -c 'import time; b = bytearray(200 << 20); time.sleep(60)'", 60);
    assert!(said.contains("it used more than 128 MB of memory, the limit"), "{said}");
    // Together as well.
    let five = "for i in 1 2 3 4 5; do python3 -c 'import time; b = bytearray(40 << 20); time.sleep(60)' & done; wait";
    assert!(bench.over(five, 60).contains("it used more than 128 MB of memory, the limit"));
    // More than there could be is not given in the first place.
    assert!(bench.run("python3 -c 'b = b\"x\" * (1 << 34)'").contains("MemoryError"));
    let two = "for i in 1 2; do python3 -c 'b = bytearray(20 << 20)' & done; wait; echo done";
    assert!(bench.run(two).ends_with("done"));
}

pub fn shared_memory() {
    let bench = Bench::new();
    let shared = "python3 -c '\nimport mmap, time\nm = mmap.mmap(-1, 200 << 20)\nm.write(b\"x\" * (50 << 20) * 4)\ntime.sleep(60)\n'";
    assert!(bench.over(shared, 60).contains("it used more than 128 MB of memory, the limit"));
    let by_name = "python3 -c '\nimport os\nprint(os.memfd_create(\"x\"))\n'";
    assert!(bench.run(by_name).contains("PermissionError"));
}

pub fn written_bytes() {
    let bench = Bench::new();
    let many = "for i in 1 2 3 4 5 6 7 8; do head -c 5000000 /dev/urandom > f$i; done; sync; sleep 60";
    // Where the file system has no disk beneath it, nothing is written to one.
    if let Err(error) = bench.run_with(json!({"command": many, "timeout_s": 60}))
        && !error.message.starts_with("timed out")
    {
        assert!(error.message.contains("it wrote more than 16 MB, the limit"), "{error}");
    }
}

pub fn one_file() {
    let bench = Bench::new();
    let said = bench.run_with(json!({"command": "exec head -c 100000000 /dev/zero > big"}));
    let said = said.map_err(|error| error.message).unwrap_err();
    assert!(said.contains("the limit"), "{said}");
    assert!(std::fs::metadata(bench.ws("big")).unwrap().len() <= 16 << 20);
}

pub fn tmp() {
    let bench = Bench::new();
    let said = bench.run("head -c 12000000 /dev/zero > /tmp/big; ls -l /tmp/big | cut -d ' ' -f 5");
    assert!(said.contains("No space left on device") && said.contains("\n8388608"), "{said}");
    assert!(bench.run("ls /tmp/big || echo gone").contains("gone"), "each command has its own");
}

pub fn open_files() {
    let bench = Bench::new();
    let said = bench.run("python3 -c 'f = [open(\"/dev/null\") for i in range(100000)]'");
    assert!(said.contains("Too many open files"), "{said}");
}

pub fn busy_loops() {
    let bench = Bench::new();
    for command in ["while :; do :; done", "python3 -c 'import re; re.match(\"(a+)+$\", \"a\" * 60 + \"b\")'", "yes"] {
        assert!(bench.over(command, 1).starts_with("timed out after 1 s"), "{command}");
    }
}
