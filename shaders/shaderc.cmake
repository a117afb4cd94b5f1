# How `make shaders` builds the shader compiler (shaderc, in C++): without the parts that nothing here links, many sources
# in one compilation. On two cores that takes 3 minutes in place of 8; the shaders that it then compiles are the same.
#
# CMake reads this as a toolchain file, the one thing that the build script of shaderc-sys lets a caller name. It says
# nothing of compilers or systems. Without it ('cargo run -p diptych-shaders --features compile') the build is the whole
# one, as shaderc-sys does it.
if(CMAKE_VERSION VERSION_LESS 3.19 OR NOT PROJECT_NAME STREQUAL "native-shaderc")
    return() # older ones cannot defer a call; CMake's own trial builds read this file, too
endif()

# Names a library whose sources are compiled together but for those that define what another of them defines.
function(diptych_compile_together library directory)
    set_target_properties(${library} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    list(TRANSFORM ARGN PREPEND "${CMAKE_SOURCE_DIR}/${directory}/")
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${library} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Called when all targets are known.
function(diptych_trim_shaderc)
    set_target_properties(
        SPIRV-Tools-shared SPIRV-Tools-reduce SPIRV-Tools-link SPIRV-Tools-lint SPIRV-Tools-diff
        PROPERTIES EXCLUDE_FROM_ALL ON)
    diptych_compile_together(SPIRV-Tools-opt spirv-tools/source/opt
        basic_block.cpp canonicalize_ids_pass.cpp ir_context.cpp local_single_block_elim_pass.cpp
        local_single_store_elim_pass.cpp mem_pass.cpp pass.cpp reduce_load_size.cpp)
    diptych_compile_together(SPIRV-Tools-static spirv-tools/source
        spirv_reducer_options.cpp val/validate_ray_tracing_reorder.cpp)
    diptych_compile_together(glslang glslang SPIRV/SpvBuilder.cpp)
endfunction()

set(SKIP_SPIRV_TOOLS_INSTALL ON CACHE BOOL "nothing here links them")
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL diptych_trim_shaderc)
