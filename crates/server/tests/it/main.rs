//! What the server promises, over real sockets, with a model that follows a script.

mod access;
mod faults;
mod fuzz;
mod openapi;
mod support;
mod symptoms;
mod wire;
