//! Image grids of samples.

use crate::model::{Generator, NOISE, SIDE};
use crate::task::Wgan;
use kiln::data::vision::MnistDataset;
use kiln::random::Key;
use kiln::store::{StoreError, atomic};
use kiln::train::logger::{Image, png};
use kiln::train::{Callback, Context, Event};
use kiln::{Device, Dyn, Tensor};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Number of images in a row and in a column of a grid.
const GRID: usize = 8;
/// Pixels between images, and at the edges.
const MARGIN: usize = 2;

/// Writes a grid of samples of the same noise every few steps, as `samples-STEP.png`.
#[derive(Debug)]
pub(crate) struct Grids {
    /// Number of steps between two grids.
    pub(crate) every: u64,
    /// Seed of the noise.
    pub(crate) seed: u64,
    /// Number of elements of a noise vector.
    pub(crate) latent: usize,
    /// Device without autodiff.
    pub(crate) device: Device,
    pub(crate) folder: PathBuf,
}

impl Callback<Wgan> for Grids {
    fn name(&self) -> &str {
        "grids"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, Wgan>) -> kiln::train::Result<()> {
        let steps = context.control.steps();
        if !matches!(event, Event::StepEnded) || !steps.is_multiple_of(self.every) {
            return Ok(());
        }
        let noise = fixed_noise(GRID * GRID, self.latent, self.seed, &self.device);
        let path = self.folder.join(format!("samples-{steps:06}.png"));
        let written = write(&context.task.generator(), noise, &path);
        written.map_err(|error| context.control.error("grids", error.to_string()))
    }
}

/// Writes the final grid, `samples.png`.
pub(crate) fn write_final(
    generator: &Generator<Dyn>,
    latent: usize,
    seed: u64,
    device: &Device,
    folder: &Path,
) -> Result<PathBuf, Box<dyn Error>> {
    let path = folder.join("samples.png");
    write(generator, fixed_noise(GRID * GRID, latent, seed, device), &path)?;
    Ok(path)
}

/// Noise `[count, latent]` that depends on the seed alone, so that grids do not change the random numbers of training.
pub(crate) fn fixed_noise(count: usize, latent: usize, seed: u64, device: &Device) -> Tensor<Dyn, 2> {
    Tensor::random_with_key([count, latent], NOISE, Key::new(seed), device)
}

fn write(generator: &Generator<Dyn>, noise: Tensor<Dyn, 2>, path: &Path) -> Result<(), Box<dyn Error>> {
    let images = generator.forward(noise).try_into_data()?.to_vec::<f32>();
    let cell = SIDE + MARGIN;
    let side = GRID * cell + MARGIN;
    let mut pixels = vec![0; side * side];
    for (index, value) in images.into_iter().enumerate() {
        let (image, pixel) = (index / (SIDE * SIDE), index % (SIDE * SIDE));
        let x = MARGIN + image % GRID * cell + pixel % SIDE;
        let y = MARGIN + image / GRID * cell + pixel / SIDE;
        pixels[y * side + x] = grey(value);
    }
    let file = png(&Image { height: side, width: side, channels: 1, pixels: &pixels })?;
    let failed = |source| StoreError::Io { path: path.to_owned(), action: "write", source };
    Ok(atomic::write_file(path, |writer| writer.write_all(&file).map_err(failed))?)
}

/// The grey of a normalised pixel.
fn grey(value: f32) -> u8 {
    (255.0 * (value * MnistDataset::STD + MnistDataset::MEAN)).round() as u8
}
