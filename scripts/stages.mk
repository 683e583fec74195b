# Which stages of scripts/test need which, with several versions of PostgreSQL. `scripts/test --pg all` calls it with the
# STAGES, the versions (MAJORS), and a folder (LOGS), which has the output of a stage while it runs, and in the end the
# file `failed`. A job is a stage, or STAGE.VERSION.

SCRIPT := scripts/test

# With the oldest version: about programs beside the server.
OLDEST := clients patroni
# With the oldest and the newest: what the library does itself, whose code differs between 15, 16 and 17 only, and what
# PostgreSQL took on once, and kept.
ENDS := clippy pg package server faults chaos
# With each version.
EACH := postgres install regress instructions upstream sql citus
# What runs on an installed library.
INSTALLED := regress instructions package upstream sql server faults clients chaos patroni citus

# What others wait for comes first, then what takes longest: make begins them in this order, as they become ready.
ORDER := postgres pgrx pg install faults server patroni clients sql chaos upstream package upgrade clippy core loom \
    fleet bench pgxn xtask site lint regress instructions citus fmt

oldest = $(firstword $(MAJORS))
ends = $(sort $(oldest) $(lastword $(MAJORS)))
with = $(if $(filter $1,$(EACH)),$(MAJORS),$(if $(filter $1,$(ENDS)),$(ends),$(if $(filter $1,$(OLDEST)),$(oldest))))
jobs = $(foreach stage,$1,$(or $(addprefix $(stage).,$(call with,$(stage))),$(stage)))

ASKED := $(call jobs,$(filter $(STAGES),$(ORDER)))
unknown := $(filter-out $(ORDER),$(STAGES))
$(if $(unknown),$(error no stage $(unknown)))

all: $(ASKED)

.SECONDEXPANSION:
$(call jobs,clippy pg install): postgres$$(suffix $$@)
$(call jobs,pg install): pgrx
# It installs the library of its own tests, which the stages after `install` must not see.
$(call jobs,install): $$(filter pg$$(suffix $$@),$(ASKED))
$(call jobs,$(INSTALLED)): install$$(suffix $$@)
upgrade: $(call jobs,install)

# Cargo would take make's jobs for its own.
unexport MAKEFLAGS MFLAGS
.PHONY: all $(call jobs,$(ORDER))

environment = $(if $(filter upgrade $(INSTALLED),$(basename $@)),SNOWFLAKE_IS_INSTALLED=1)

$(call jobs,$(ORDER)):
	@if $(environment) $(SCRIPT) $(patsubst .%,--pg %,$(suffix $@)) $(basename $@) >$(LOGS)/$@ 2>&1 </dev/null; then \
	    sed -nE '/: SKIPPED/p; s/^$(basename $@) took/$@: passed in/p' $(LOGS)/$@; \
	else \
	    cat $(LOGS)/$@; awk -v job=$@ -f scripts/failed.awk $(LOGS)/$@ >>$(LOGS)/failed; exit 1; \
	fi
