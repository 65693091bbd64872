//! The model: pieces to vectors, six layers in which each piece looks at the others of its text, and the mean.
//!
//! Texts of any length go through side by side, row upon row, without anything to fill them up; only where pieces look
//! at each other is it done text by text.

use super::maths::{Window, gelu, likeness, linear, normalise, softmax, weigh};
use super::weights::{Rows, WIDTH, Weights};

const LAYERS: usize = 6;
const HEADS: usize = 12;
const HEAD: usize = WIDTH / HEADS;
const INNER: usize = 4 * WIDTH;

/// Places that a piece can have in a text.
const PLACES: usize = 512;

pub(crate) struct Layers {
    pieces: Rows,
    /// By place, with what stands for "the first text", as all here are.
    places: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Norm {
    scale: Vec<f32>,
    shift: Vec<f32>,
}

struct Linear {
    weights: Vec<f32>,
    bias: Vec<f32>,
}

struct Layer {
    /// What a piece asks, what it answers to, and what it says: three tables in one.
    look: Linear,
    seen: Linear,
    seen_norm: Norm,
    wide: Linear,
    narrow: Linear,
    norm: Norm,
}

impl Layers {
    pub fn read(weights: Weights, pieces: usize) -> Result<Self, String> {
        let mut places = weights.table("embeddings.position_embeddings.weight", &[PLACES, WIDTH])?;
        let kinds = weights.table("embeddings.token_type_embeddings.weight", &[2, WIDTH])?;
        for place in places.chunks_exact_mut(WIDTH) {
            add(place, &kinds[..WIDTH]);
        }
        let norm = Norm::read(&weights, "embeddings.LayerNorm")?;
        let layers = (0..LAYERS).map(|at| Layer::read(&weights, at)).collect::<Result<_, _>>()?;
        let pieces = weights.rows("embeddings.word_embeddings.weight", pieces)?;
        Ok(Layers { pieces, places, norm, layers })
    }

    /// The mean vector of each text, as long as it comes out. A text has at least one piece.
    pub fn means(&self, texts: &[Vec<u32>]) -> std::io::Result<Vec<Vec<f32>>> {
        let mut rows = Vec::with_capacity(texts.iter().map(Vec::len).sum::<usize>() * WIDTH);
        for text in texts {
            for (piece, place) in text.iter().zip(self.places.chunks_exact(WIDTH)) {
                let mut row = self.pieces.row(*piece)?;
                add(&mut row, place);
                rows.extend(row);
            }
        }
        self.norm.apply(&mut rows);
        let mut room = Room::default();
        for layer in &self.layers {
            layer.apply(&mut rows, texts, &mut room);
        }
        let mut rest = &rows[..];
        let mean = |text: &Vec<u32>| {
            let (own, later) = rest.split_at(text.len() * WIDTH);
            rest = later;
            let mut sum = vec![0.0; WIDTH];
            own.chunks_exact(WIDTH).for_each(|row| add(&mut sum, row));
            sum.iter_mut().for_each(|x| *x /= text.len() as f32);
            sum
        };
        Ok(texts.iter().map(mean).collect())
    }
}

/// Tables that are filled anew in each layer.
#[derive(Default)]
struct Room {
    looks: Vec<f32>,
    seen: Vec<f32>,
    shares: Vec<f32>,
    wide: Vec<f32>,
    out: Vec<f32>,
}

impl Layer {
    fn read(weights: &Weights, at: usize) -> Result<Self, String> {
        let linear = |name: &str, outputs: usize, inputs: usize| -> Result<Linear, String> {
            let name = format!("encoder.layer.{at}.{name}");
            Ok(Linear {
                weights: weights.table(&format!("{name}.weight"), &[outputs, inputs])?,
                bias: weights.table(&format!("{name}.bias"), &[outputs])?,
            })
        };
        let mut look = linear("attention.self.query", WIDTH, WIDTH)?;
        for name in ["attention.self.key", "attention.self.value"] {
            let Linear { weights, bias } = linear(name, WIDTH, WIDTH)?;
            look.weights.extend(weights);
            look.bias.extend(bias);
        }
        Ok(Layer {
            look,
            seen: linear("attention.output.dense", WIDTH, WIDTH)?,
            seen_norm: Norm::read(weights, &format!("encoder.layer.{at}.attention.output.LayerNorm"))?,
            wide: linear("intermediate.dense", INNER, WIDTH)?,
            narrow: linear("output.dense", WIDTH, INNER)?,
            norm: Norm::read(weights, &format!("encoder.layer.{at}.output.LayerNorm"))?,
        })
    }

    fn apply(&self, rows: &mut [f32], texts: &[Vec<u32>], room: &mut Room) {
        self.look.apply(rows, &mut room.looks);
        room.seen.clear();
        room.seen.resize(rows.len(), 0.0);
        let mut first = 0;
        for text in texts {
            look_around(&room.looks, first, text.len(), &mut room.shares, &mut room.seen);
            first += text.len();
        }
        self.seen.apply(&room.seen, &mut room.out);
        add(rows, &room.out);
        self.seen_norm.apply(rows);
        self.wide.apply(rows, &mut room.wide);
        gelu(&mut room.wide);
        self.narrow.apply(&room.wide, &mut room.out);
        add(rows, &room.out);
        self.norm.apply(rows);
    }
}

/// Has each of the `count` pieces of the text that begins at row `first` look at all of them, in twelve ways.
fn look_around(looks: &[f32], first: usize, count: usize, shares: &mut Vec<f32>, seen: &mut [f32]) {
    const STRIDE: usize = 3 * WIDTH;
    shares.resize(count * count, 0.0);
    for head in 0..HEADS {
        let window = |part: usize| {
            let table = &looks[first * STRIDE + part * WIDTH + head * HEAD..];
            Window { table, rows: count, columns: HEAD, stride: STRIDE }
        };
        likeness(window(0), window(1), 1.0 / (HEAD as f32).sqrt(), shares);
        shares.chunks_exact_mut(count).for_each(softmax);
        weigh(shares, window(2), &mut seen[first * WIDTH + head * HEAD..], WIDTH);
    }
}

impl Linear {
    fn apply(&self, rows: &[f32], out: &mut Vec<f32>) {
        linear(rows, &self.weights, &self.bias, out);
    }
}

impl Norm {
    fn read(weights: &Weights, name: &str) -> Result<Self, String> {
        let half = |half: &str| weights.table(&format!("{name}.{half}"), &[WIDTH]);
        Ok(Norm { scale: half("weight")?, shift: half("bias")? })
    }

    fn apply(&self, rows: &mut [f32]) {
        normalise(rows, &self.scale, &self.shift);
    }
}

fn add(to: &mut [f32], what: &[f32]) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to += what);
}
