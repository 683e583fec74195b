# For `pgxn install`, and for `make && make install` out of habit. Needs Rust and cargo-pgrx; PG_CONFIG names the
# PostgreSQL. Everything else is in scripts/.

PG_CONFIG ?= pg_config
MAJOR := $(shell $(PG_CONFIG) --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
$(if $(MAJOR),,$(error no pg_config found: make PG_CONFIG=/path/to/pg_config))
BUILT := $(or $(CARGO_TARGET_DIR),target)/pgxs-$(MAJOR)

# cargo-pgrx would ask its own configuration, which need not know this PostgreSQL.
export PGRX_PG_CONFIG_PATH := $(PG_CONFIG)

all: clean
	cargo pgrx package --pg-config '$(PG_CONFIG)' --no-default-features --features 'pg$(MAJOR)' --out-dir '$(BUILT)'

# Only copies files, because root may call it, without Rust.
install:
	@test -d '$(BUILT)' || { echo 'Run make first, as the user who has Rust.' >&2; exit 1; }
	cp -rv --no-preserve=ownership '$(BUILT)/.' '$(DESTDIR)/'

clean:
	rm -rf '$(BUILT)'

.PHONY: all install clean
