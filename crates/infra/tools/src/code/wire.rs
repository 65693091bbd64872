//! What a worker and the process of a program say to each other: JSON, each message behind its length.
//!
//! They take turns. The process runs until nothing in the program can go on by itself, says which calls were made until
//! then, and reads one result. So whatever a program does follows from the results, in their order.

use std::io::{self, Read, Write};

use posse_core::clock::Millis;
use posse_core::tool::calls::{CallResult, Function, MadeCall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Most bytes of one message: of what a program says, and of what it is told.
const MAX_MESSAGE: usize = 16 << 20;

/// A program, as its process is told of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The body of an asynchronous function.
    pub source: String,
    pub functions: Vec<Function>,
    /// What its clock says.
    pub at: Millis,
    /// What its random numbers come from.
    pub seed: u32,
    pub bounds: Bounds,
}

/// What a program may use that its process itself looks at.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// Bytes of memory, as far as they are the program's own.
    pub memory: usize,
    /// Bytes of stack.
    pub stack: usize,
    pub calls: usize,
    /// Bytes that it may log, return and pass to calls, each by itself.
    pub output: usize,
}

/// What the process of a program says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// The program logged a line.
    Log(String),
    /// It waits for a result, after it made these calls.
    Made(Vec<MadeCall>),
    /// It returned; a value that is none is absent.
    Returned(Option<String>),
    /// It threw, or is no program.
    Threw(String),
    /// It met one of its bounds.
    Met(Bound),
}

/// One of the bounds that the process itself looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Bound {
    Memory,
    Calls,
    Output,
}

/// Says something. Blocks.
pub(super) fn say(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&framed(message)?)
}

/// Hears what is said next. Blocks.
pub(super) fn hear<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut message = vec![0; bounded(length)?];
    from.read_exact(&mut message)?;
    Ok(serde_json::from_slice(&message)?)
}

/// The worker's side.
pub(crate) struct Line(pub tokio::net::UnixStream);

impl Line {
    pub async fn begin(&mut self, program: &Program) -> io::Result<()> {
        self.0.write_all(&framed(program)?).await
    }

    pub async fn answer(&mut self, result: &CallResult) -> io::Result<()> {
        self.0.write_all(&framed(result)?).await
    }

    /// What is said next. An error once nothing more is, or what is said is no message.
    pub async fn hear(&mut self) -> io::Result<Said> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).await?;
        let mut message = vec![0; bounded(length)?];
        self.0.read_exact(&mut message).await?;
        Ok(serde_json::from_slice(&message)?)
    }
}

fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - 4;
    if length > MAX_MESSAGE {
        return Err(io::Error::other("a message is too long"));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

fn bounded(length: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE { Err(io::Error::other("a message is too long")) } else { Ok(length) }
}
