# For `pgxn install`, and for `make && make install && make installcheck` out of habit. Needs Rust and cargo-pgrx;
# PG_CONFIG names the PostgreSQL. Everything else is in scripts/.

PG_CONFIG ?= pg_config
MAJOR := $(shell $(PG_CONFIG) --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
$(if $(MAJOR),,$(error no pg_config found: make PG_CONFIG=/path/to/pg_config))
BUILT := $(or $(CARGO_TARGET_DIR),target)/pgxs-$(MAJOR)
# Of one server, because two of a version may be checked at once.
CHECKED := $(or $(CARGO_TARGET_DIR),target)/installcheck-$(MAJOR)$(subst /,-,-$(PGHOST)-$(PGPORT))

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

# pg_test/regress and pg_test/isolation on the server of PGHOST, PGPORT and PGUSER, which has `snowflake_id.worker_id = 1`
# and the other settings by default. By PGXS in a make of its own, which is to build and install nothing.
PGXS = $(shell '$(PG_CONFIG)' --pgxs)
names = $(sort $(basename $(notdir $(wildcard $1))))
folders = --inputdir='pg_test/$1' --outputdir='$(CHECKED)/$1'
installcheck: export REGRESS = $(call names,pg_test/regress/sql/*.sql)
installcheck: export REGRESS_OPTS = $(call folders,regress)
installcheck: export ISOLATION = $(call names,pg_test/isolation/specs/*.spec)
installcheck: export ISOLATION_OPTS = $(call folders,isolation)
installcheck:
	@rm -rf '$(CHECKED)' && mkdir -p '$(CHECKED)/regress' '$(CHECKED)/isolation'
	@$(MAKE) --no-print-directory -f '$(PGXS)' PGXS='$(PGXS)' PG_CONFIG='$(PG_CONFIG)' installcheck || \
	    { cat '$(CHECKED)'/*/regression.diffs 2>/dev/null; exit 1; }
	@rm -rf '$(CHECKED)'

.PHONY: all install clean installcheck
