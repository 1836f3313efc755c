//! Models against PyTorch: tiny random models whose files `fixtures/generate.py` writes, and published models.

mod decoders;
mod encoders;
mod fixture;
mod pretrained;
mod published;
mod quantized;
mod vision;

type B = kiln_backends::Flex;
