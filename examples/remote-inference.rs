//! Inference on another machine: the program builds the model and reads the results, the server computes.
//!
//! ```text
//! kiln server --backend cpu --port 3000                                            # on the one machine
//! cargo run --release --example remote-inference --features remote -- ws://host:3000   # on the other
//! ```
//!
//! Without an address it starts a server of its own.

use kiln::nn::{Linear, LinearConfig};
use kiln::prelude::*;
use kiln::server::{Server, ServerOptions};
use std::time::Instant;

type B = RemoteBackend;

/// A classifier of images of 28 by 28 pixels.
#[derive(Module, Clone, Debug)]
struct Classifier<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Classifier<B> {
    fn new(device: &B::Device) -> Self {
        Classifier {
            hidden: LinearConfig::new(784, 256).init(device),
            output: LinearConfig::new(256, 10).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        activation::softmax(self.output.forward(activation::relu(self.hidden.forward(images))), 1)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    // Lives as long as the program.
    let own = match &address {
        Some(_) => None,
        None => Some(Server::bind::<Cpu>(&Default::default(), ServerOptions::new())?),
    };
    let url = address.or(own.as_ref().map(Server::url)).unwrap_or_default();
    let device = RemoteDevice::new(url);

    // The weights stay on the server; ops are sent in batches, and only a read waits.
    let model = Classifier::<B>::new(&device);
    device.lost().map_or(Ok(()), Err)?;
    println!("connected to {}", device.url());
    for batch in 0..5 {
        let images = Tensor::<B, 2>::random([64, 784], Distribution::Default, &device);
        let start = Instant::now();
        let classes = model.forward(images).argmax(1).try_into_data()?;
        let before: Vec<i64> = classes.to_vec::<i64>().into_iter().take(8).collect();
        println!("batch {batch}: {before:?}… in {:.2?}", start.elapsed());
    }

    let statistics = device.statistics();
    println!(
        "{} ops in {} batches of {} programs; {} bytes sent, {} received",
        statistics.ops,
        statistics.batches,
        statistics.programs,
        statistics.bytes_sent,
        statistics.bytes_received
    );
    Ok(())
}
