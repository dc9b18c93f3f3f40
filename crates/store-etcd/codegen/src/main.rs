//! Writes the messages and clients of `proto/etcd.proto` to `src/proto.rs` of the crate above.
//! Needs no `protoc`. Not part of any build: the output is checked in.

use std::{error::Error, fs, path::Path};

const HEAD: &str = "//! Written by store-etcd/codegen from proto/etcd.proto. Do not edit.\n\n";

fn main() -> Result<(), Box<dyn Error>> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("codegen must lie in store-etcd")?;
    let out = home.join("codegen/target/out");
    fs::create_dir_all(&out)?;
    let files = protox::compile(["etcd.proto"], [home.join("proto")])?;
    tonic_prost_build::configure().build_server(false).bytes(".").out_dir(&out).compile_fds(files)?;
    let code = fs::read_to_string(out.join("etcdserverpb.rs"))?;
    fs::write(home.join("src/proto.rs"), format!("{HEAD}{code}"))?;
    Ok(())
}
