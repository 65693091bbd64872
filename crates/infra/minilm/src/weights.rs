//! What is in the model's file: named tables of numbers (safetensors), and behind them the pieces.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

/// How many numbers stand for one piece, and for a text.
pub(crate) const WIDTH: usize = 384;

/// Longest head that is read, in bytes; this model's has 10 kB.
const MOST_HEAD: u64 = 1 << 20;

/// Most bytes of pieces; this model's have 232 kB.
const MOST_VOCABULARY: u64 = 16 << 20;

#[derive(Deserialize)]
struct Table {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// The file, open, and where what is in it.
pub(crate) struct Weights {
    file: File,
    tables: HashMap<String, Table>,
    data: u64,
}

/// A table that stays in the file and is read row by row: of thirty thousand rows a text needs a few.
pub(crate) struct Rows {
    file: File,
    at: u64,
}

impl Weights {
    /// The tables, and the text behind them.
    pub fn open(path: &Path) -> Result<(Self, String), String> {
        let why = |error: std::io::Error| error.to_string();
        let file = File::open(path).map_err(why)?;
        let length = file.metadata().map_err(why)?.len();
        let mut head = [0; 8];
        file.read_exact_at(&mut head, 0).map_err(why)?;
        let head = u64::from_le_bytes(head);
        if head > MOST_HEAD || 8 + head > length {
            return Err("it is no safetensors file".into());
        }
        let mut json = vec![0; head as usize];
        file.read_exact_at(&mut json, 8).map_err(why)?;
        let head_is = |error: serde_json::Error| format!("its head is not understood: {error}");
        let entries: HashMap<String, Box<RawValue>> = serde_json::from_slice(&json).map_err(head_is)?;
        let tables = entries.into_iter().filter(|(name, _)| name != "__metadata__");
        let tables = tables.map(|(name, table)| Ok((name, serde_json::from_str(table.get()).map_err(head_is)?)));
        let tables: HashMap<String, Table> = tables.collect::<Result<_, String>>()?;
        let data = 8 + head;
        let end = tables.values().map(|table| table.data_offsets[1]).max().unwrap_or(0).saturating_add(data);
        let rest = length.checked_sub(end).filter(|rest| *rest <= MOST_VOCABULARY);
        let rest = rest.ok_or("it does not end where it says that it does")?;
        let mut vocabulary = vec![0; rest as usize];
        file.read_exact_at(&mut vocabulary, end).map_err(why)?;
        let vocabulary = String::from_utf8(vocabulary).map_err(|_| "its pieces are not UTF-8")?;
        Ok((Weights { file, tables, data }, vocabulary))
    }

    /// Where a table of this shape begins.
    fn find(&self, name: &str, shape: &[usize]) -> Result<u64, String> {
        let table = self.tables.get(name).ok_or_else(|| format!("it has no {name}"))?;
        let [from, to] = table.data_offsets;
        let bytes = 4 * shape.iter().product::<usize>() as u64;
        if table.dtype != "F32" || table.shape != shape || to.checked_sub(from) != Some(bytes) {
            return Err(format!("its {name} is {} {:?}, not F32 {shape:?}", table.dtype, table.shape));
        }
        Ok(self.data + from)
    }

    /// A whole table, row by row.
    pub fn table(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let at = self.find(name, shape)?;
        numbers(&self.file, at, shape.iter().product()).map_err(|error| format!("{name}: {error}"))
    }

    /// A table of rows of [`WIDTH`], left where it is.
    pub fn rows(self, name: &str, count: usize) -> Result<Rows, String> {
        let at = self.find(name, &[count, WIDTH])?;
        Ok(Rows { file: self.file, at })
    }
}

impl Rows {
    /// One row.
    pub fn row(&self, number: u32) -> std::io::Result<Vec<f32>> {
        numbers(&self.file, self.at + u64::from(number) * 4 * WIDTH as u64, WIDTH)
    }
}

fn numbers(file: &File, at: u64, count: usize) -> std::io::Result<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    file.read_exact_at(&mut bytes, at)?;
    let (fours, _) = bytes.as_chunks::<4>();
    Ok(fours.iter().map(|four| f32::from_le_bytes(*four)).collect())
}
