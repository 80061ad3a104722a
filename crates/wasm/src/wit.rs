//! The bindings of `wit/connector.wit`, one module for each world; what the worlds share is there once.
#![expect(unreachable_pub, reason = "generated; the file it is made of has the descriptions")]

pub mod source_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "source-connector",
        imports: {
            "forebay:connector/sockets.[static]connection.connect": async | trappable,
            "forebay:connector/sockets.[method]connection.start-tls": async | trappable,
            "forebay:connector/sockets.poll": async | trappable,
            "forebay:connector/outlet": async | trappable,
            "forebay:connector/state": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: { "forebay:connector/sockets.connection": crate::sockets::Connection },
        require_store_data_send: true,
    });
}

pub mod destination_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "destination-connector",
        exports: { default: async },
        with: {
            "forebay:connector/types": crate::wit::types,
            "forebay:connector/host": crate::wit::host,
            "forebay:connector/sockets": crate::wit::sockets,
            "forebay:connector/state": crate::wit::state,
            "forebay:connector/metrics": crate::wit::metrics,
        },
        require_store_data_send: true,
    });
}

pub mod transform_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "transform-connector",
        exports: { default: async },
        with: {
            "forebay:connector/types": crate::wit::types,
            "forebay:connector/host": crate::wit::host,
            "forebay:connector/metrics": crate::wit::metrics,
        },
        require_store_data_send: true,
    });
}

pub mod change_source_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "change-source-connector",
        exports: { default: async },
        with: {
            "forebay:connector/types": crate::wit::types,
            "forebay:connector/host": crate::wit::host,
            "forebay:connector/sockets": crate::wit::sockets,
        },
        require_store_data_send: true,
    });
}

pub mod change_target_world {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "change-target-connector",
        exports: { default: async },
        with: {
            "forebay:connector/types": crate::wit::types,
            "forebay:connector/host": crate::wit::host,
            "forebay:connector/sockets": crate::wit::sockets,
            "forebay:connector/changes": crate::wit::changes,
        },
        require_store_data_send: true,
    });
}

pub use change_source_world::exports::forebay::connector::change_source;
pub use change_source_world::forebay::connector::changes;
pub use change_target_world::exports::forebay::connector::change_target;
pub use destination_world::exports::forebay::connector::destination;
pub use source_world::exports::forebay::connector::source;
pub use source_world::forebay::connector::{host, metrics, outlet, sockets, state, types};
pub use transform_world::exports::forebay::connector::transform;
