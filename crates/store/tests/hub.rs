//! Models of the Hugging Face hub: folders, the cache, and downloads from a server on the loopback interface.

#[cfg(feature = "hub")]
mod download;
mod folder;
#[cfg(feature = "hub")]
mod server;
